"""Frames: what is written for one message, and what one socket read comes to.

    0   u32  length     of what follows the header
    4   u32  checksum   CRC32C of bytes 8 to the end of the frame
    8   u8   kind       number of the message
    9   u8   flags      0
    10  u16  reserved   0
    12  u32  request    answers repeat it; 0: no answer is expected
    16  u32  head       bytes of the MessagePack array; the rest is the payload
    20

*Theory of operation.* The core cuts, checks and groups (`native/core/src/wire`): one
call for each socket read, however many frames are in it. Appends of one read to one
stream come out as one `AppendFrames`, everything else as a `Frame`.

*Invariants.* A frame over the limit is refused when its header is there, before the
rest is kept. The frames do not depend on where the bytes were cut; only the grouping
does. A decoder that refused gives nothing more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from braidlog._native import FrameDecoder as CoreDecoder
from braidlog._native import frame_header

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["HEADER_BYTES", "AppendFrames", "Frame", "FrameDecoder", "encode_frame"]

HEADER_BYTES: Final = 20


class Frame(Struct, frozen=True):
    """One frame, checked but not understood."""

    kind: int
    request: int
    head: bytes
    """The fields of the message, as a MessagePack array."""
    payload: memoryview

    @property
    def size(self) -> int:
        """Return the bytes of the whole frame."""
        return HEADER_BYTES + len(self.head) + len(self.payload)


class AppendFrames(Struct, frozen=True):
    """Appends of one socket read to one stream in one epoch, in their order."""

    stream: int
    epoch: int
    requests: Sequence[int]
    payloads: Sequence[bytes]
    """The batch of each request."""
    sizes: Sequence[int]
    """The bytes of each frame."""


def encode_frame(
    kind: int, request: int, head: bytes, payload: Sequence[Buffer] = ()
) -> list[Buffer]:
    """Return the buffers to write for one frame, with those of the payload as given."""
    return [frame_header(kind, request, head, payload), *payload]


class FrameDecoder:
    """Cuts what comes over a connection into frames."""

    def __init__(self, frame_bytes_max: int) -> None:
        """Refuse frames of more than `frame_bytes_max` bytes with their header."""
        self._decoder = CoreDecoder(frame_bytes_max)

    @property
    def buffered(self) -> int:
        """Return the bytes of a frame that is not whole yet."""
        return self._decoder.buffered

    @property
    def missing(self) -> int:
        """Return how many bytes the next header or, behind it, the frame still needs.

        Whoever feeds no more than that gets at most one frame, and may set another
        limit before the next.
        """
        return self._decoder.missing

    def limit(self, frame_bytes_max: int) -> None:
        """Set another limit for the frames whose header has not been seen."""
        self._decoder.set_frame_bytes_max(frame_bytes_max)

    def feed(self, data: Buffer) -> list[Frame | AppendFrames]:
        """Take the bytes of one socket read; return what is whole now.

        Raises:
            RemoteProtocolError: a frame is malformed; the message says where and why.
                Frames of the same read before it are not returned.
        """
        return [
            Frame(found[0], found[1], found[2], memoryview(found[3]))
            if len(found) == 4
            else AppendFrames(*found)
            for found in self._decoder.feed(data)
        ]
