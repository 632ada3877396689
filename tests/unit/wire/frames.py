"""Frames by themselves: their bytes, and what the core cuts bytes into."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from braidlog._native import Conn
from braidlog.wire.connection import Frame

if TYPE_CHECKING:
    from typing_extensions import Buffer


def conn(limit: int = 1 << 16, *, server: bool = True, last: int = 0) -> Conn:
    """Return one end on which everything is cold."""
    return Conn(
        server=server,
        window=1 << 40,
        incoming_bytes_max=limit,
        frame_bytes_max=1 << 32,
        last=last,
    )


def encode_frame(
    kind: int, request: int, head: bytes, payload: Sequence["Buffer"] = ()
) -> bytes:
    """Return the bytes of a frame."""
    end = conn()
    end.queue(kind, request, head, payload)
    return b"".join(end.take())


def feed(end: Conn, data: "Buffer") -> list[Frame]:
    """Return the frames that are whole now, all of which are cold."""
    frames: list[Frame] = []
    at = 0
    while at < len(memoryview(data)):
        appends, appended, cold, at, _ = end.feed(data, at)
        assert (appends, appended) == ([], [])
        if cold is not None:
            kind, request, head, payload = cold
            frames.append(Frame(kind, request, head, memoryview(payload)))
    return frames
