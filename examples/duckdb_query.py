"""Query a log with SQL: DuckDB reads it as an Arrow stream, without copies."""

import sys
import tempfile

import duckdb
import pyarrow as pa

import braidlog


def main(data: str) -> None:
    with braidlog.open(data) as store:
        log = store.create_log("sales", exist_ok=True)
        amounts = range(1, 1001)
        log.append_many(
            [b"%d" % amount for amount in amounts],
            keys=[b"north" if amount % 3 else b"south" for amount in amounts],
        )
        sales = pa.RecordBatchReader.from_stream(log)
        rows = duckdb.sql("""
            select key::varchar as region, count(*), sum(value::varchar::int)
            from sales group by region order by region
        """).fetchall()
        del sales
        for region, count, total in rows:
            print(f"{region}: {count} sales, {total} in all")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
