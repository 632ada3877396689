"""Change events and files of them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from examples.demo.events import (
    Event,
    decode,
    encode,
    key_of,
    month_of,
    runs,
    shown,
)
from examples.demo.files import (
    digest_of,
    read_lines,
    read_oracle,
    survey,
    write_events,
)
from examples.demo.options import DemoError, DemoOptions

PUT = (
    b'{"ts":1283953333,"source":"tarantool","seq":0,"commit":"9b8dd7032d05",'
    b'"author":"06318094","op":"put","path":".gdbinit",'
    b'"blob":"063737873027f4fc3f43ce7029585b888c8567a9","mode":"100644"}'
)
DELETE = (
    b'{"ts":1290177276,"source":"tarantool","seq":190,"commit":"5f240524aad5",'
    b'"author":"06318094","op":"delete","path":"core/log_io_internal.h"}'
)


def event(source: str = "s", seq: int = 0, path: str = "p") -> Event:
    return Event(0, source, seq, "c", "a", path, ("b", "100644"))


@pytest.mark.parametrize("line", [PUT, DELETE])
def test_writes_the_very_bytes_of_the_recorded_format(line: bytes) -> None:
    assert encode(decode(line)) == line


@pytest.mark.parametrize(
    "path", [b"plain", "红楼梦.txt".encode(), b"od\xff\xfed", b"a\nb\t\"c'", b"\x7f \\"]
)
def test_any_path_survives(path: bytes) -> None:
    given = event(path=path.decode("utf-8", "surrogateescape"))
    line = encode(given)
    assert b"\n" not in line
    assert decode(line) == given
    assert key_of(given) == b"s/" + path


@pytest.mark.parametrize(
    "line", [b"{}", b"[1]", b"no", b"\xff", PUT.replace(b"put", b"cut")]
)
def test_refuses_what_is_no_event(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(line)


def test_shows_odd_paths_on_one_line() -> None:
    assert shown(b"a\xff\n\xe2\x82\xac") == "a\\xff\\n€"


@pytest.mark.parametrize(
    ("ts", "month"),
    [
        (0, "1970-01"),
        (-1, "1969-12"),
        (1_704_067_199, "2023-12"),
        (1_704_067_200, "2024-01"),
    ],
)
def test_months_are_in_utc(ts: int, month: str) -> None:
    assert month_of(ts) == month


def test_runs_end_with_the_source_or_the_limit() -> None:
    given = [event("a"), event("a"), event("a"), event("b"), event("a")]
    found = [[e.source for e in run] for run in runs(iter(given), 2)]
    assert found == [["a", "a"], ["a"], ["b"], ["a"]]


@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.zst"])
@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_reads_plain_and_compressed_lines(
    tmp_path: Path, name: str, ending: bytes
) -> None:
    lines = [b'{"n":%d}' % n for n in range(200_000)]
    path = tmp_path / name
    with pa.output_stream(path) as out:
        out.write(b"\n".join(lines) + ending)
    assert list(read_lines(path)) == lines
    assert list(read_lines(path, skip=150_001)) == lines[150_001:]
    assert list(read_lines(path, skip=200_001)) == []
    found = survey(path)
    assert (found.events, found.bytes) == (len(lines), sum(map(len, lines)))
    assert found.digest == digest_of(lines)


def test_write_events(tmp_path: Path) -> None:
    given = [event(seq=n) for n in range(2500)]
    assert list(write_events(tmp_path / "out", given)) == [1000, 2000, 2500]
    assert list(map(decode, read_lines(tmp_path / "out"))) == given


def test_oracle(tmp_path: Path) -> None:
    path = tmp_path / "trees.jsonl"
    path.write_text(
        '{"source":"a","path":"x","blob":"1","mode":"100644"}\n'
        '{"source":"b","path":"y","blob":"2","mode":"120000"}\n'
    )
    assert read_oracle(path) == {
        "a": {"x": ("1", "100644")},
        "b": {"y": ("2", "120000")},
    }
    path.write_text('{"source":"a","path":"x"}\n')
    with pytest.raises(DemoError, match=r"trees\.jsonl, line 1: not an entry"):
        read_oracle(path)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl.zst"
    path.write_bytes(b"this is not zstd")
    with pytest.raises(DemoError, match=r"cannot read .*events\.jsonl\.zst"):
        list(read_lines(path))


def test_options_are_checked(tmp_path: Path) -> None:
    present = tmp_path / "present"
    present.touch()
    for options, message in [
        (DemoOptions(input=present), "belong together"),
        (
            DemoOptions(input=present, oracle=tmp_path / "absent"),
            "absent is not a file",
        ),
        (DemoOptions(kills=-1), "negative"),
        (DemoOptions(data=tmp_path), "is not empty"),
    ]:
        with pytest.raises(DemoError, match=message):
            options.check()
    DemoOptions(data=tmp_path / "absent").check()
