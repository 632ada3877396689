"""Read and write logs with Spark: ``spark.read.format("braidlog")``, and so on.

Importing this package costs nothing and needs neither pyspark nor pyarrow; the names
below are loaded when they are used.

    from braidlog.spark import local_session, register

    spark = local_session()
    register(spark)
    orders = (
        spark.read.format("braidlog")
        .option("path", "data/")
        .option("log", "orders")
        .load()
    )
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braidlog.spark.failures import log_error, log_errors
    from braidlog.spark.java import ensure_java
    from braidlog.spark.session import local_session
    from braidlog.spark.source.data_source import BraidlogDataSource
    from braidlog.spark.streaming.offset import lag

__all__ = [
    "BraidlogDataSource",
    "ensure_java",
    "lag",
    "local_session",
    "log_error",
    "log_errors",
    "register",
]

_HOMES: Final = {
    "BraidlogDataSource": "braidlog.spark.source.data_source",
    "ensure_java": "braidlog.spark.java",
    "lag": "braidlog.spark.streaming.offset",
    "local_session": "braidlog.spark.session",
    "log_error": "braidlog.spark.failures",
    "log_errors": "braidlog.spark.failures",
}

_THERE: Final = "DATA_SOURCE_ALREADY_EXISTS"


def register(spark: SparkSession) -> None:
    """Make the formats ``braidlog``, ``braidlog_delta`` and ``braidlog_iceberg`` known.

    Registering again replaces each by itself. Sessions of an interpreter in which the
    package is installed find ``braidlog`` without this call.
    """
    from pyspark.errors import AnalysisException

    from braidlog.spark.lake.delta import DeltaSink
    from braidlog.spark.lake.iceberg import IcebergSink
    from braidlog.spark.source.data_source import BraidlogDataSource

    for source in (BraidlogDataSource, DeltaSink, IcebergSink):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            if error.getCondition() != _THERE:
                raise
            # Spark looks in the session that was last used and not in the one that is
            # asked, which does not have it. This is how a session gets used.
            spark.createDataFrame([], "nothing int")
            spark.dataSource.register(source)


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
