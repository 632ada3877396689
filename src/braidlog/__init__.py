"""A durable, totally ordered log: embedded like SQLite, read by Arrow and Spark."""

from importlib.metadata import version as _version

__all__ = ["__version__"]

__version__ = _version("braidlog")
