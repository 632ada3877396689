"""A dumb model of one end of a connection: lists, and no haste."""

from typing import NamedTuple

from property.wire import model
from property.wire.model import Plain

APPEND, APPENDED = 16, 17


class Refused(Exception):
    """The other side sent what is no frame."""


class Found(NamedTuple):
    """What one call of `feed` found, as the core returns it."""

    appends: list[tuple[int, int, list[int], list[bytes]]]
    appended: list[tuple[int, int, int, int, int]]
    cold: Plain | None
    end: int


class Lane:
    """One end; see `braidlog._native.Conn`."""

    def __init__(self, *, server: bool, window: int, limit: int, last: int) -> None:
        self.server = server
        self.window = window
        self.limit = limit
        self.last = last
        self.hot = False
        self.kept = b""
        self.failed = False
        self.open: list[tuple[int, int, int]] = []
        self.written = b""

    # --- the books

    @property
    def used(self) -> int:
        return sum(cost for _, _, cost in self.open)

    def numbers(self) -> list[int]:
        return [number for number, _, _ in self.open]

    def kind(self, number: int) -> int:
        return next((kind for n, kind, _ in self.open if n == number), 0)

    def room(self, size: int) -> bool:
        return self.used + max(size, 256) <= self.window

    def begin(self, number: int, kind: int, size: int) -> int:
        if not number:
            return 1
        if number in self.numbers():
            return 2
        if not self.room(size):
            return 3
        self.open.append((number, kind, max(size, 256)))
        return 0

    def settle(self, number: int) -> int:
        kind = self.kind(number)
        self.open = [each for each in self.open if each[0] != number]
        return kind

    # --- what goes

    def queue(self, kind: int, number: int, head: bytes, payload: bytes) -> int:
        size = 20 + len(head) + len(payload)
        if size > self.limit:
            return size
        self.written += model.encode(kind, number, head, payload)
        return 0

    def ask(self, kind: int, head: bytes, payload: bytes) -> int:
        size = 20 + len(head) + len(payload)
        if size > self.limit:
            return -size
        if not self.room(size):
            return 0
        number = self.last % (2**32 - 1) + 1
        while number in self.numbers():
            number = number % (2**32 - 1) + 1
        self.last = number
        self.begin(number, kind, size)
        self.queue(kind, number, head, payload)
        return number

    def answer(self, number: int, kind: int, head: bytes, payload: bytes) -> int:
        size = self.queue(kind, number, head, payload)
        if not size:
            self.settle(number)
        return size

    def answer_append(self, number: int, places: tuple[int, ...]) -> bool:
        if self.kind(number) != APPEND:
            return False
        head = bytes([0x94]) + b"".join(map(encode_number, places))
        return not self.answer(number, APPENDED, head, b"")

    # --- what comes

    def feed(self, data: bytes, begin: int) -> Found:
        found = Found([], [], None, len(data))
        if self.failed:
            raise Refused
        left = self.kept + data[begin:]
        self.kept = b""
        while True:
            frame = next(model.decode(left, self.limit), b"")
            if frame is None:
                self.failed = True
                raise Refused
            if isinstance(frame, bytes):
                self.kept = left
                return found
            left = left[20 + len(frame[2]) + len(frame[3]) :]
            if not self.take(frame, found):
                return found._replace(cold=frame, end=len(data) - len(left))

    def take(self, frame: Plain, found: Found) -> bool:
        """Take a frame if it is hot."""
        kind, number, head, payload = frame
        values = decode_array(head)
        if not self.hot or values is None:
            return False
        if self.server:
            plain = len(values) == 2 or (len(values) == 3 and values[2] is False)
            if not plain or any(isinstance(value, bool) for value in values[:2]):
                return False
            size = 20 + len(head) + len(payload)
            if kind != APPEND or not payload or self.begin(number, kind, size):
                return False
            stream, epoch = values[:2]
            for each in found.appends:
                if each[:2] == (stream, epoch):
                    each[2].append(number)
                    each[3].append(payload)
                    return True
            found.appends.append((stream, epoch, [number], [payload]))
            return True
        if kind != APPENDED or payload or self.kind(number) != APPEND:
            return False
        if len(values) != 4 or any(isinstance(value, bool) for value in values):
            return False
        self.settle(number)
        llsn, glsn, count, version = values
        found.appended.append((number, llsn, glsn, count, version))
        return True


def encode_number(value: int) -> bytes:
    """Return the shortest form of a number in MessagePack."""
    if value < 0x80:
        return bytes([value])
    for mark, width in ((0xCC, 1), (0xCD, 2), (0xCE, 4), (0xCF, 8)):
        if value < 256**width:
            return bytes([mark]) + value.to_bytes(width, "big")
    raise ValueError(value)


def decode_array(head: bytes) -> list[int] | None:
    """Return the numbers and False of a small array; None if it has anything else."""
    if not 0x90 <= head[0] <= 0x9F:
        return None
    count, at = head[0] - 0x90, 1
    values: list[int] = []
    while at < len(head):
        first, at = head[at], at + 1
        if first == 0xC2:
            values.append(False)
            continue
        width = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}.get(first, 0)
        if first >= 0x80 and not width:
            return None
        if width and at + width > len(head):
            return None
        digits = head[at : at + width] if width else bytes([first])
        at += width
        value = int.from_bytes(digits, "big")
        if value >= 2**63:
            return None
        values.append(value)
    return values if len(values) == count else None
