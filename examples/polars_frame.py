"""Read a log into a Polars frame, and append one."""

import sys
import tempfile

import polars as pl

import braidlog


def main(data: str) -> None:
    frame = pl.DataFrame(
        {"key": ["a", "b", "a"], "value": ["1.5", "2.5", "4"]},
    )
    with braidlog.open(data) as store:
        log = store.create_log("readings", exist_ok=True)
        print("stored at", log.append_arrow(frame))
        found = pl.DataFrame(log).select(
            pl.col("key").cast(pl.String), pl.col("value").cast(pl.String).cast(float)
        )
        print(found.group_by("key").agg(pl.col("value").sum()).sort("key"))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
