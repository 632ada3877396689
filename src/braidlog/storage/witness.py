"""What the watermark file shows of the end of the log, and nothing else may.

The core writes it behind a sync: this segment was durable up to here. So it tells that
something is missing where nothing that is left does: the end of the newest segment, or
segments that the manifest does not list any more.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from braidlog import _native
from braidlog.errors import LogError

__all__ = ["lost_edits", "missing_end", "way_back"]


def lost_edits(data: Path) -> str | None:
    """Tell which segment the manifest does not list, though it was in use."""
    with suppress(LogError):
        seen = _native.inspect_state(data)
        newest = seen["end_segment"] or 0
        mark = seen["watermark"]
        if mark and seen["fault"] is None and newest < mark["segment"]:
            return (
                f"the log was durable in segment {mark['segment']} (salt"
                f" {mark['salt']}), which the manifest does not list: edits of the"
                " manifest are lost"
            )
    return None


def way_back(data: Path) -> str:
    """Tell how segments come back that the manifest does not list."""
    return (
        "segments that the manifest does not list come back where their files are"
        f" whole: copy {data}, remove CURRENT from the copy, repair the copy"
    )


def missing_end(data: Path) -> str | None:
    """Tell what was durable at the end of the newest segment and is no frame now."""
    with suppress(LogError):
        mark = _native.inspect_state(data)["watermark"]
        if mark:
            end = _frames_end(data, mark["segment"])
            if end < mark["durable"]:
                return (
                    f"segment {mark['segment']} was durable up to {mark['durable']} and"
                    f" ends at {end}: records, cursors, logs or trims of which nothing"
                    " else tells"
                )
    return None


def _frames_end(data: Path, segment: int) -> int:
    """Return where the last frame ends that can be recognised, damaged or not."""
    end = 0
    with suppress(LogError):
        for row in _native.inspect_frames(data, segment, None, 0):
            if row["header"]:
                end = row["offset"] + row["length"]
    return end
