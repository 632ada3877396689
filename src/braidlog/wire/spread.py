"""How a log spreads keys over its streams, as long as these were never changed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

KEY_STREAMS: Final = "key_streams"
"""Name of the log option that says over how many streams keys are spread."""


def first_streams(streams: Iterable[int], options: bytes) -> tuple[int, ...]:
    """Return the streams for keys of a log with these options, in their order.

    Raises:
        ValueError, TypeError, AttributeError: the options cannot be read.
    """
    ordered = tuple(sorted(streams))
    stored = json.loads(options) if options else {}
    count = int(stored.get(KEY_STREAMS, len(ordered)))
    return ordered[:count] if 0 < count <= len(ordered) else ordered
