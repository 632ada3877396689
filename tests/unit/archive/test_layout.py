"""Manifests: what is no archive is refused, and no byte of one can change unnoticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from braidlog.archive.layout import (
    ArchivedFile,
    Manifest,
    StreamRange,
    data_name,
    decode,
    encode,
    generation_of,
    manifest_name,
)
from braidlog.documents import checksum_of
from braidlog.errors import (
    ArchiveDamagedError,
    InvalidArgumentError,
    NewerFormatError,
)
from unit.archive.made import LOG_ID


def file(begin: int, end: int, llsn: int | None = None, stream: int = 1) -> Any:
    first = begin if llsn is None else llsn
    streams = (StreamRange(stream, first, first + end - begin),)
    name = data_name(begin, end, "a-1")
    check = checksum_of(b"")
    return ArchivedFile(name, begin, end, 100, check, 9, check, -5, 7, streams)


GOOD = Manifest("log", LOG_ID, 3, "job", (file(5, 9), file(9, 10)))


def test_a_manifest_comes_back_as_it_was() -> None:
    assert decode(encode(GOOD), "m") == GOOD
    assert (GOOD.begin, GOOD.end) == (5, 10)
    assert [f.begin for f in GOOD.holding(8, 9)] == [5]
    assert [f.begin for f in GOOD.holding(8, 10)] == [5, 9]
    grown = GOOD.followed_by("next", [file(10, 30)])
    assert (grown.generation, grown.end, grown.job) == (4, 30, "next")


BAD: dict[str, Callable[[], object]] = {
    "a gap": lambda: Manifest("l", LOG_ID, 1, "", (file(5, 9), file(10, 11))),
    "an overlap": lambda: Manifest("l", LOG_ID, 1, "", (file(5, 9), file(8, 11))),
    "an empty file": lambda: Manifest("l", LOG_ID, 1, "", (file(5, 5),)),
    "no file": lambda: Manifest("l", LOG_ID, 1, "", ()),
    "no generation": lambda: replace(GOOD, generation=0),
    "no identity": lambda: replace(GOOD, log_id="x"),
    "a gap of LLSNs": lambda: Manifest(
        "l", LOG_ID, 1, "", (file(5, 9), file(9, 10, llsn=10))
    ),
    "too few LLSNs": lambda: Manifest(
        "l", LOG_ID, 1, "", (replace(file(5, 9), streams=(StreamRange(1, 5, 8),)),)
    ),
    "another directory": lambda: Manifest(
        "l", LOG_ID, 1, "", (replace(file(5, 9), path="data/../../x.parquet"),)
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_archive_is_refused(case: str) -> None:
    with pytest.raises(InvalidArgumentError):
        BAD[case]()


def test_streams_are_followed_each_on_its_own() -> None:
    files = (file(1, 3, 40, stream=2), file(3, 5, 7), file(5, 9, 42, stream=2))
    assert Manifest("l", LOG_ID, 1, "", files).end == 9


def test_a_flip_anywhere_is_refused() -> None:
    data = encode(GOOD)
    for at in range(len(data) - 1):
        flipped = bytearray(data)
        flipped[at] ^= 1
        # Of the version alone a flip can be a newer version, which is refused as well.
        with pytest.raises((ArchiveDamagedError, NewerFormatError)):
            decode(bytes(flipped), "m")
    for length in range(len(data) - 1):
        with pytest.raises(ArchiveDamagedError):
            decode(data[:length], "m")


def test_a_newer_format_is_named() -> None:
    whole = json.loads(encode(GOOD)) | {"format": 2}
    with pytest.raises(NewerFormatError) as caught:
        decode(json.dumps(whole).encode(), "m")
    assert (caught.value.found, caught.value.supported) == (2, 1)


def test_a_checksum_makes_no_archive_of_nonsense() -> None:
    good = json.loads(encode(GOOD))["manifest"]
    nonsense: list[Any] = [{}, {"log": "l"}, [], good | {"files": [3]}]
    nonsense += [good | {name: {}} for name in good]
    nonsense += [good | {"files": [good["files"][0] | {"bytes": "1"}]}]
    for body in nonsense:
        text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        whole = {"format": 1, "manifest": body, "checksum": checksum_of(text)}
        with pytest.raises(ArchiveDamagedError):
            decode(json.dumps(whole).encode(), "m")


def test_names_of_generations() -> None:
    assert generation_of(manifest_name(17)) == 17
    for name in ("17.json", manifest_name(1) + ".tmp", "x", ""):
        assert generation_of(name) is None
