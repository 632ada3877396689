"""A dumb model of the frame decoder: all bytes at once, checksum bit by bit."""

from collections.abc import Iterator

from braidlog.wire.connection import Frame

Plain = tuple[int, int, bytes, bytes]


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def encode(kind: int, request: int, head: bytes, payload: bytes) -> bytes:
    fields = [(kind, 1), (0, 3), (request, 4), (len(head), 4)]
    checked = b"".join(value.to_bytes(width, "little") for value, width in fields)
    checked += head + payload
    length = len(head) + len(payload)
    return (
        length.to_bytes(4, "little") + crc32c(checked).to_bytes(4, "little") + checked
    )


def decode(data: bytes, limit: int) -> Iterator[Plain | None]:
    """Give the frames, then None if something is wrong."""
    while len(data) >= 20:
        length, checksum = (
            int.from_bytes(data[at : at + 4], "little") for at in (0, 4)
        )
        kind, zero = data[8], data[9:12]
        request, head = (int.from_bytes(data[at : at + 4], "little") for at in (12, 16))
        end = 20 + length
        if end > limit or not kind or any(zero) or not 0 < head <= length:
            yield None
            return
        if len(data) < end:
            return
        if crc32c(data[8:end]) != checksum:
            yield None
            return
        yield kind, request, data[20 : 20 + head], data[20 + head : end]
        data = data[end:]


def plain(frame: Frame) -> Plain:
    """Return a frame as the model has it."""
    return frame.kind, frame.request, frame.head, bytes(frame.payload)
