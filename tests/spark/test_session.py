"""The session that `local_session` makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_workers_import_what_is_installed(spark: Any) -> None:
    """From the zip they compile it each time they start."""

    def look(batches: Any) -> Any:
        import sys

        import pyarrow as pa
        import pyspark

        for _ in batches:
            yield pa.record_batch({"file": [pyspark.__file__], "by": [sys.executable]})

    frame = spark.range(1).mapInArrow(look, "file string, by string")
    (row,) = frame.collect()
    assert (row.file, row.by) == (pyspark.__file__, sys.executable)


def test_it_is_quiet_here_and_keeps_state_in_rocksdb(spark: Any) -> None:
    assert spark.conf.get("spark.ui.showConsoleProgress") == "false"  # no terminal
    store = spark.conf.get("spark.sql.streaming.stateStore.providerClass")
    assert store.endswith("RocksDBStateStoreProvider")


def test_a_program_leaves_no_directory_behind(tmp_path: Path) -> None:
    # As quick as Java starts.
    told = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    program = (
        "from braidlog.spark import local_session;"
        f"local_session(settings={told}).stop()"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert list(tmp_path.glob("braidlog-spark-*")) == []
