"""The Spark session of a run: one, as a user on this machine would start it."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.contest import Unavailable
from benchmarks.spark.plan import MASTER, Plan
from braidlog.errors import UnavailableError

_PACKAGES = ("pyspark", "duckdb", "polars")


def session(plan: Plan) -> Any:
    """Return the session of this run, started when somebody needs it first.

    Raises:
        Unavailable: there is no Spark or no Java here.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise Unavailable(f"pyspark cannot be imported ({error})") from error
    running = SparkSession.getActiveSession()
    return _started(plan) if running is None else running


def _started(plan: Plan) -> Any:
    from braidlog.spark import local_session, register

    try:
        spark = local_session(
            "benchmarks",
            master=MASTER,
            scratch=plan.directory / "spark",
            diagnostics=plan.directory / "spark.log",
            progress=False,
        )
    except UnavailableError as error:
        raise Unavailable(str(error)) from error
    register(spark)
    return spark


def stop() -> None:
    """Stop the session, if there is one."""
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        return
    running = SparkSession.getActiveSession()
    if running is not None:
        running.stop()


def versions() -> str:
    """Return the versions of everybody that takes part, beside those of the package."""
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} missing")
    return ", ".join(found)
