"""A Spark session on this machine, with the settings that suit a log.

The settings that matter: workers run this interpreter, talk to the JVM through
Unix sockets (20-40 % less work than TCP), times are UTC, nothing listens beyond
loopback, and no web interface is started. State of streaming queries is in RocksDB,
which ``transformWithState`` needs. Python processes start from an installed package
instead of a zip (`braidlog.spark.home`).
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from braidlog.spark.home import ensure_home
from braidlog.spark.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


def local_session(
    name: str = "braidlog",
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    scratch: str | Path | None = None,
    diagnostics: str | Path | None = None,
    progress: bool | None = None,
) -> SparkSession:
    """Start Spark on this machine, or return the session that already runs.

    ``settings`` override the defaults. Spark's temporary files go to ``scratch``, or to
    a temporary directory that is removed when the program ends, unless tables are in
    it. With ``diagnostics``, the output of the JVM and the workers goes to that file
    instead of the terminal. The ``progress`` of stages is shown on standard error; None
    shows it if that is a terminal.

    Raises:
        UnavailableError: There is no Java; the message says how to get one.
    """
    import pyspark
    from pyspark.sql import SparkSession

    ensure_java()
    ensure_home(Path(pyspark.__file__).parent)
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else: whatever `python3` is
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = Path(scratch or _temporary())
    builder = SparkSession.builder.master(master).appName(name)
    shown = _is_terminal(diagnostics) if progress is None else progress
    ours = {
        **_SETTINGS,
        **_folders(folder),
        "spark.ui.showConsoleProgress": str(shown).lower(),
    }
    for key, value in {**ours, **(settings or {})}.items():
        builder = builder.config(key, value)
    with _errors_to(diagnostics):
        return builder.getOrCreate()


def _temporary() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="braidlog-spark-"))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() != owner:
        return  # A fork that ends while its parent goes on.
    # Only what Spark works with: tables beside it may be wanted.
    shutil.rmtree(folder / "local", ignore_errors=True)
    with suppress(OSError):
        folder.rmdir()


def _is_terminal(diagnostics: str | Path | None) -> bool:
    return diagnostics is None and sys.stderr.isatty()


def _folders(folder: Path) -> dict[str, str]:
    return {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": (folder / "warehouse").absolute().as_uri(),
    }


@contextmanager
def _errors_to(path: str | Path | None) -> Iterator[None]:
    """Let a process started meanwhile inherit a file as its standard error.

    The JVM writes to the descriptor directly, so replacing ``sys.stderr`` would not
    reach it.
    """
    if path is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with Path(path).open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
