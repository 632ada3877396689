"""A reader made of `docs/formats.md` alone reads runs that released versions wrote."""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compat.layouts import Layouts, Take, crc32c

FORMATS = Path(__file__).parents[2] / "docs" / "formats.md"
RUNS = Path(__file__).parent / "runs"
LAYOUTS = Layouts.of(FORMATS)
CODECS = {1: "zstd", 2: "lz4_raw"}

Entry = tuple[bytes, int, bytes | None]


@dataclass
class Run:
    footer: dict[str, Any]
    first_key: bytes
    last_key: bytes
    pages: list[list[Entry]]
    separators: list[bytes]
    compressions: set[int]

    @property
    def entries(self) -> list[Entry]:
        return [entry for page in self.pages for entry in page]


def parse(data: bytes) -> Run:
    size = LAYOUTS.size("run_footer")
    raw = data[-size:]
    footer = LAYOUTS.parse("run_footer", raw)
    assert raw[:4] == b"BRUN"
    assert footer["checksum"] == crc32c(raw[:-4])
    lengths = [footer["pages_bytes"], footer["index_bytes"], footer["filter_bytes"]]
    assert sum(lengths) + size == len(data)
    take = Take(data)
    pages, index, bloom = (take.take(length) for length in lengths)
    assert footer["index_checksum"] == crc32c(index)
    assert footer["filter_checksum"] == crc32c(bloom)
    return _run(footer, pages, Take(index))


def _run(footer: dict[str, Any], stored: bytes, index: Take) -> Run:
    head = LAYOUTS.take("run_index", index)
    places = [LAYOUTS.take("run_page", index) for _ in range(footer["pages"])]
    first, last = index.take(head["first_bytes"]), index.take(head["last_bytes"])
    separators = [index.take(place["separator_bytes"]) for place in places]
    assert index.at == len(index.data)
    take = Take(stored)
    pages = [_page(place, take.take(place["stored_bytes"])) for place in places]
    assert take.at == len(stored)
    compressions = {place["compression"] for place in places}
    return Run(footer, first, last, pages, separators, compressions)


def _page(place: dict[str, Any], stored: bytes) -> list[Entry]:
    assert place["checksum"] == crc32c(stored)
    raw, n = stored, place["entries"]
    if codec := CODECS.get(place["compression"]):
        raw = pa.Codec(codec).decompress(stored, place["raw_bytes"]).to_pybytes()
    assert len(raw) == place["raw_bytes"]
    take = Take(raw)
    positions = struct.unpack(f"<{n}Q", take.take(8 * n))
    key_ends = struct.unpack(f"<{n}I", take.take(4 * n))
    payload_ends = struct.unpack(f"<{n}I", take.take(4 * n))
    bits = int.from_bytes(take.take((n + 7) // 8), "little")
    assert bits >> n == 0
    keys = _pieces(take, key_ends)
    payloads = _pieces(take, payload_ends)
    assert take.at == len(raw)
    assert place["first_position"] == positions[0]
    return [
        (keys[i], positions[i], None if bits >> i & 1 else payloads[i])
        for i in range(n)
    ]


def _pieces(take: Take, ends: tuple[int, ...]) -> list[bytes]:
    return [
        take.take(end - begin) for begin, end in zip((0, *ends), ends, strict=False)
    ]


@pytest.fixture(params=["none", "zstd", "lz4"])
def run(request: pytest.FixtureRequest) -> Run:
    return parse((RUNS / f"v1-{request.param}.run").read_bytes())


def test_all_compressions_hold_the_same() -> None:
    runs = [parse(path.read_bytes()) for path in sorted(RUNS.iterdir())]
    assert len(runs) == 3
    assert all(run.entries == runs[0].entries for run in runs)
    assert set.union(*(run.compressions for run in runs)) == {0, 1, 2}


def test_entries_are_in_order_and_counted(run: Run) -> None:
    entries = run.entries
    order = [(key, -position) for key, position, _ in entries]
    assert order == sorted(set(order))
    positions = [position for _, position, _ in entries]
    footer = run.footer
    assert (footer["node_id"], footer["tree_id"], footer["number"]) == (0x102, 0x304, 7)
    assert footer["entries"] == len(entries) > 100
    assert footer["keys"] == len({key for key, _, _ in entries})
    assert footer["tombstones"] == sum(payload is None for _, _, payload in entries) > 9
    assert footer["position_min"] == min(positions)
    assert footer["position_max"] == max(positions)
    assert (run.first_key, run.last_key) == (entries[0][0], entries[-1][0])


def test_separators_are_the_shortest_that_will_do(run: Run) -> None:
    assert run.separators[0] == b""
    for at, separator in enumerate(run.separators[1:], start=1):
        last, first = run.pages[at - 1][-1][0], run.pages[at][0][0]
        if last == first:
            assert separator == first
        else:
            shared = next(
                i for i in range(len(first)) if last[i : i + 1] != first[i : i + 1]
            )
            assert separator == first[: shared + 1]


def test_a_flipped_bit_does_not_pass() -> None:
    """The reader of the document is no rubber stamp."""
    data = bytearray((RUNS / "v1-none.run").read_bytes())
    for at in (100, 7000, len(data) - 200, len(data) - 60):
        data[at] ^= 1
        with pytest.raises(AssertionError):
            parse(bytes(data))
        data[at] ^= 1
    parse(bytes(data))
