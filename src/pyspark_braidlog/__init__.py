"""Where Spark finds the ``braidlog`` format by itself.

Spark imports every top-level module whose name begins with ``pyspark_`` and registers
its ``DefaultSource``. One such module that raises takes all of them down, so this one
imports nothing until asked, and without pyspark it simply has no ``DefaultSource``.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    """Load the data source when Spark looks for it."""
    if name == "DefaultSource":
        try:
            from braidlog.spark.source.data_source import BraidlogDataSource
        except Exception as error:
            raise AttributeError(f"DefaultSource cannot be loaded: {error}") from error
        return BraidlogDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
