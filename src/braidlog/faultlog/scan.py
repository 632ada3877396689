"""Which record of a ring is the newest, and what is damaged.

Theory of operation. A ring has an even number of slots. Record `s` has its place
`p = (s - 1) % (slots / 2)`, and two copies: in slot `p`, then, when that one is
durable, in slot `p + slots / 2`. The node acts when both are. A crash can tear one of
the two, never both, so:

    copies of the place behind the newest whole record    meaning
    first torn, second as it was before                   torn: the node never acted
    both damaged                                          a record may be lost: refuse

Damage elsewhere concerns records that are replaced already. It is reported.

Invariants:
    - The newest whole record is never overwritten before its successor has two copies:
      with at least two places, the successor's place is another one.
    - A record that the node acted in is found again, or the ring is refused, as long as
      one place is damaged. A ring that lost its newest record is never taken for whole.
    - Serials are dense; the digest of a record is in the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from braidlog.errors import CorruptionError
from braidlog.faultlog.record import SLOT_BYTES, FaultRecord, decode, digest_of

__all__ = ["SLOTS_MAX", "SLOTS_MIN", "Scan", "offsets_of", "scan"]

SLOTS_MIN = 4
SLOTS_MAX = 65536

_EMPTY = bytes(SLOT_BYTES)


@dataclass(frozen=True, slots=True)
class Scan:
    """What a ring holds."""

    slots: int
    newest: FaultRecord | None = None
    incomplete: bool = False
    """Whether a copy of the newest record is missing."""
    notes: tuple[str, ...] = ()
    """Damage that changes nothing, for people."""


def offsets_of(serial: int, slots: int) -> tuple[int, int]:
    """Return where the two copies of a record are."""
    place = (serial - 1) % (slots // 2)
    return (place * SLOT_BYTES, (place + slots // 2) * SLOT_BYTES)


def scan(ring: bytes, *, path: str = "") -> Scan:
    """Find the newest record of a ring.

    Raises:
        CorruptionError: The newest record may be lost, or records do not fit together.
        FormatError: The ring is not for this build.
    """
    slots, rest = divmod(len(ring), SLOT_BYTES)
    if rest or slots % 2 or not SLOTS_MIN <= slots <= SLOTS_MAX:
        raise CorruptionError(f"a fault log cannot have {len(ring)} bytes", path=path)
    found: dict[int, FaultRecord] = {}
    damaged: dict[int, str] = {}
    for offset, slot in _written(ring):
        try:
            found[offset] = decode(slot, path=path, offset=offset)
        except CorruptionError as error:
            damaged[offset] = error.message
    if not found:
        return _scan_without_records(slots, damaged, path)
    newest = max(found.values(), key=lambda record: record.serial)
    for offset, record in found.items():
        _check_place(record, offset, newest, slots, path)
    _check_chain(found, newest, slots, path)
    notes = _judge_next(newest, found, damaged, slots, path)
    copies = [found.get(offset) for offset in offsets_of(newest.serial, slots)]
    return Scan(slots, newest, copies != [newest, newest], notes)


def _written(ring: bytes) -> Iterator[tuple[int, bytes]]:
    for offset in range(0, len(ring), SLOT_BYTES):
        slot = ring[offset : offset + SLOT_BYTES]
        if slot != _EMPTY:
            yield offset, slot


def _scan_without_records(slots: int, damaged: dict[int, str], path: str) -> Scan:
    # The first copy of the first record alone may be torn.
    if set(damaged) <= {0}:
        return Scan(slots, notes=tuple(_torn(offset) for offset in damaged))
    msg = f"none of the records can be read: {len(damaged)} slots are damaged"
    raise CorruptionError(msg, path=path, offset=min(damaged))


def _check_place(
    record: FaultRecord, offset: int, newest: FaultRecord, slots: int, path: str
) -> None:
    mine = (record.cluster, record.node) == (newest.cluster, newest.node)
    if not mine or offset not in offsets_of(record.serial, slots):
        msg = f"record {record.serial} at {offset} belongs to another ring or place"
        raise CorruptionError(msg, path=path, offset=offset)
    if record.number > newest.number or (
        record.serial == newest.serial and record != newest
    ):
        msg = f"record {record.serial} at {offset} contradicts the newest one"
        raise CorruptionError(msg, path=path, offset=offset)


def _check_chain(
    found: dict[int, FaultRecord], newest: FaultRecord, slots: int, path: str
) -> None:
    """Check that the newest record names the one before it, if that one is here."""
    for offset in offsets_of(newest.serial - 1, slots):
        before = found.get(offset)
        if before is None or before.serial != newest.serial - 1:
            continue
        if digest_of(before) != newest.previous:
            msg = f"record {newest.serial} does not follow the one before it"
            raise CorruptionError(msg, path=path, offset=offset)


def _judge_next(
    newest: FaultRecord,
    found: dict[int, FaultRecord],
    damaged: dict[int, str],
    slots: int,
    path: str,
) -> tuple[str, ...]:
    first, second = offsets_of(newest.serial + 1, slots)
    # A lap later the place held a record, so zeros are damage as well.
    lapped = newest.serial >= slots // 2
    bad_first = first in damaged or (lapped and first not in found)
    bad_second = second in damaged or (lapped and second not in found)
    if bad_second and (bad_first or first not in found):
        msg = (
            f"both copies behind record {newest.serial} are damaged:"
            " a newer record may be lost"
        )
        raise CorruptionError(msg, path=path, offset=first)
    notes = [_torn(first)] if bad_first else []
    notes += [text for offset, text in damaged.items() if offset != first]
    return tuple(notes)


def _torn(offset: int) -> str:
    return f"the record at {offset} was torn while it was written and never took effect"
