"""One Spark session and one cluster for all tests: both cost seconds to start."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from braidlog.errors import UnavailableError
from braidlog.spark import ensure_java, local_session
from braidlog.testing.cluster import LocalCluster

_TESTS = Path(__file__).parents[1]
_SETTINGS = {
    # Tasks of pipelines are imported by workers, also those that tests bring.
    "spark.executorEnv.PYTHONPATH": f"{_TESTS}:{_TESTS.parent}",
    # Where `SparkConnectService` listens if a test starts it.
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    try:
        ensure_java()
    except UnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("spark")
    session = local_session(
        "tests",
        master="local[2,2]",  # two attempts, so that retries are possible
        settings=_SETTINGS,
        scratch=folder,
        diagnostics=folder / "spark.log",
    )
    yield session
    session.stop()


@pytest.fixture
def remote(spark: Any) -> Iterator[str]:
    """Serve the session to other processes: starting another Java takes a minute."""
    pytest.importorskip("grpc", reason="needs the extra 'declarative'")
    package = spark._jvm.org.apache.spark.sql.connect.service
    service = getattr(package, "SparkConnectService$").__getattr__("MODULE$")
    service.start(spark._jsc.sc())
    try:
        yield f"sc://127.0.0.1:{service.localPort()}"
    finally:
        none = spark._jvm.scala.Option.empty()
        service.stop(none, none)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes; who uses a log makes it anew, who kills a node starts it again."""
    with LocalCluster(3, directory=tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def _no_leftovers() -> Iterator[None]:
    """Close what Spark left open, before other tests are blamed for it."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"
