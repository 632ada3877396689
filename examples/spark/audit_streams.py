"""Find gaps and duplicates in each stream of a log's records, `transformWithState`.

A log has neither, because LLSNs of a stream are dense. Data derived from it may. Here a
transformation loses ten records and duplicates one; the audit names them in a log of
its own. Its state is one number per stream, however long the log is.

    pip install '.[declarative]'   # in a checkout; Spark needs protobuf for its state
    python examples/spark/audit_streams.py [DIRECTORY]

A second run in the same directory continues with the records appended since.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import braidlog
from braidlog.spark import local_session, register

FAULTS = "stream int, fault string, begin bigint, end bigint"


class Audit(StatefulProcessor):
    """Remembers the LLSN that comes next in a stream."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self.next = handle.getValueState("next", "llsn bigint")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Compare what one batch has of a stream with what was due."""
        # They come in any order.
        llsns = np.sort(np.concatenate([frame["llsn"].to_numpy() for frame in rows]))
        due = self.next.get()[0] if self.next.exists() else int(llsns[0])
        before = np.concatenate([[due - 1], llsns[:-1]])
        missing, doubled = llsns > before + 1, llsns <= before
        found = pd.DataFrame(
            {
                "stream": np.int32(key[0]),
                "fault": np.where(doubled, "duplicate", "gap"),
                "begin": np.where(doubled, llsns, before + 1),
                "end": np.where(doubled, llsns + 1, llsns),
            }
        )
        self.next.update((max(due, int(llsns[-1]) + 1),))
        yield found[missing | doubled]

    def close(self) -> None:
        """Do nothing: the state is Spark's."""


def audit(records: DataFrame) -> DataFrame:
    """Return the faults of streaming records with the columns stream and llsn."""
    return records.groupBy("stream").transformWithStateInPandas(
        Audit(), outputStructType=FAULTS, outputMode="append", timeMode="none"
    )


def main(folder: str, spark: SparkSession) -> None:
    """Append some records, audit what was not audited yet, print all faults."""
    data, checkpoint = str(Path(folder, "data")), str(Path(folder, "checkpoint"))
    with braidlog.open(data) as store:
        orders = store.create_log("orders", exist_ok=True)
        orders.append_many([b"order %d" % n for n in range(1, 1001)])
        store.create_log("faults", exist_ok=True)
    register(spark)
    source = spark.readStream.format("braidlog").schema("stream int, llsn bigint")
    records = source.options(path=data, log="orders", maxRecordsPerTrigger="500").load()
    broken = records.where("llsn not between 500 and 509").select(
        "stream",
        f.explode(f.expr("array_repeat(llsn, if(llsn = 700, 2, 1))")).alias("llsn"),
    )
    said = f.format_string("%s at %d to %d", "fault", "begin", f.col("end") - 1)
    query = (
        audit(broken)
        .select(f.col("stream").cast("string").alias("key"), said.alias("value"))
        .writeStream.format("braidlog")
        .options(path=data, log="faults")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with braidlog.open(data, read_only=True) as store:
        for fault in store.log("faults").read():
            print(f"stream {fault.key.decode()}: {fault.value.decode()}")


if __name__ == "__main__":
    folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()
    Path(folder).mkdir(parents=True, exist_ok=True)
    main(folder, local_session("audit", diagnostics=Path(folder, "spark.log")))
