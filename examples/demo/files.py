"""Files of JSON lines, plain or compressed with zstd, read as a stream."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from examples.demo.events import Event, Tree, decode_entry, encode
from examples.demo.options import DemoError

__all__ = ["Survey", "digest_of", "read_lines", "read_oracle", "survey", "write_events"]

_READ_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Survey:
    """What an input holds, known before it is imported."""

    events: int
    bytes: int
    digest: str


def read_lines(path: Path, skip: int = 0) -> Iterator[bytes]:
    """Yield the lines of a file after the first ``skip``, without line feeds.

    Raises:
        DemoError: The file cannot be read or is not what its name says.
    """
    number = 0
    for lines in _blocks(path):
        begin = min(len(lines), max(0, skip - number))
        number += len(lines)
        yield from lines[begin:]


def survey(path: Path) -> Survey:
    """Count the events of a file and take the digest of their order and content."""
    events = size = 0
    digest = hashlib.sha256()
    for lines in _blocks(path):
        events += len(lines)
        size += sum(map(len, lines))
        digest.update(b"".join(line + b"\n" for line in lines))
    return Survey(events, size, digest.hexdigest())


def digest_of(lines: Iterable[bytes]) -> str:
    """Return the digest that ``survey`` finds for these lines."""
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line + b"\n")
    return digest.hexdigest()


def read_oracle(path: Path) -> dict[str, Tree]:
    """Return the trees that a replay must end with.

    Raises:
        DemoError: A line is not an entry of a tree.
    """
    trees: dict[str, Tree] = {}
    for number, line in enumerate(read_lines(path), 1):
        try:
            source, name, entry = decode_entry(line)
        except ValueError as error:
            raise DemoError(f"{path}, line {number}: {error}") from error
        trees.setdefault(source, {})[name] = entry
    return trees


def write_events(path: Path, events: Iterable[Event]) -> Iterator[int]:
    """Write events as lines; yield how many are written, now and then."""
    count = 0
    with path.open("wb", buffering=_READ_BYTES) as file:
        for event in events:
            file.write(encode(event) + b"\n")
            count += 1
            if count % 1000 == 0:
                yield count
    yield count


def _blocks(path: Path) -> Iterator[list[bytes]]:
    """Yield whole lines, many at a time; a last one may lack its line feed."""
    rest = b""
    try:
        # Arrow decompresses by the ending of the name (.zst, .gz, ...).
        with pa.input_stream(path, buffer_size=_READ_BYTES) as stream:
            while piece := stream.read(_READ_BYTES):
                *whole, rest = (rest + piece).split(b"\n")
                yield [line for line in whole if line]
    except OSError as error:
        raise DemoError(f"cannot read {path}: {error}") from error
    if rest:
        yield [rest]
