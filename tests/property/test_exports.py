"""What is exported comes back: any records, through each format that promises it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import braidlog
from braidlog.cli import main

TIMES = st.integers(-(1 << 63), (1 << 63) - 1)
DATA = st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
RECORDS = st.tuples(
    st.none() | DATA,
    st.none() | DATA,
    TIMES,
    st.lists(st.tuples(st.text(max_size=8), st.none() | DATA), max_size=3),
)
FIELDS = [
    f"--{name}={field}"
    for name, field in (
        ("value", "value"),
        ("key", "key"),
        ("timestamp", "timestamp"),
        ("headers", "headers"),
    )
]


def run(*words: str) -> None:
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output


@given(
    records=st.lists(RECORDS, max_size=30),
    suffix=st.sampled_from(["jsonl", "jsonl.gz", "ndjson.zst", "parquet"]),
    batch=st.integers(1, 40),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_exported_comes_back(
    records: list[Any],
    suffix: str,
    batch: int,
) -> None:
    with tempfile.TemporaryDirectory() as made:
        data, file = str(Path(made) / "data"), str(Path(made) / f"out.{suffix}")
        with braidlog.open(data, segment_bytes=64 << 10) as node:
            log = node.create_log("one")
            for value, key, timestamp, headers in records:
                log.submit(value, key=key, timestamp=timestamp, headers=headers)
        run("export", "one", file, "--data", data)
        run("import", "two", file, "--create", *FIELDS, f"--batch={batch}", "-d", data)
        with braidlog.open(data, read_only=True) as node:
            one, two = list(node.log("one").read()), list(node.log("two").read())
        assert [(r.value, r.key, r.timestamp, list(r.headers)) for r in two] == records
        assert two == one
