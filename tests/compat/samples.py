"""The samples of side files, by `docs/formats.md` alone."""

from itertools import pairwise
from typing import Any

from compat.layouts import LAYOUTS, Take


def taken(entry: dict[str, int], stored: Take) -> list[dict[str, int]]:
    """Add up the samples of an entry: the first is its first frame."""
    samples = [{"delta": 0, "offset": entry["first_offset"]}]
    for _ in range(entry["samples"] - 1):
        step, last = LAYOUTS.take("side_sample", stored), samples[-1]
        assert step["llsn_step"]
        assert step["offset_step"]
        samples.append(
            {
                "delta": last["delta"] + step["llsn_step"],
                "offset": last["offset"] + step["offset_step"],
            }
        )
    return samples


def check_entry(
    entry: dict[str, int],
    samples: list[dict[str, int]],
    frames: list[tuple[dict[str, Any], int]],
) -> None:
    begin, end = entry["begin"], entry["end"]
    frames = [each for each in frames if begin <= each[0]["llsn"] < end]
    begins = [header["llsn"] for header, _ in frames]
    lengths = [header["count"] for header, _ in frames]
    dense = zip(pairwise(begins), lengths, strict=False)
    assert all(after == before + count for (before, after), count in dense)
    assert entry["flags"] == 2 + (entry["lane"] > 0)
    assert (entry["begin"], entry["end"]) == (begins[0], begins[-1] + lengths[-1])
    assert entry["first_offset"] == frames[0][1]
    assert (entry["last_offset"], entry["last_llsn"]) == (frames[-1][1], begins[-1])
    assert entry["frames"] == len(frames)
    assert entry["bytes"] == sum(header["length"] for header, _ in frames)
    assert entry["next_offset"] == frames[-1][1] + frames[-1][0]["length"]
    expected: list[dict[str, int]] = []
    before, sampled = 0, 0
    for header, offset in frames:
        if not expected or before - sampled >= 4096:
            delta = header["llsn"] - begin
            expected.append({"delta": delta, "offset": offset})
            sampled = before
        before += header["length"]
    assert samples == expected
    assert entry["bytes_at_sample"] == sampled
