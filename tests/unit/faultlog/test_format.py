"""A ring is what `docs/formats.md` says, read without the package."""

import hashlib
from pathlib import Path

from braidlog.faultlog import Configuration
from braidlog.node.rescue.fault_log import FaultLog
from compat.layouts import FORMATS, Layouts

LAYOUTS = Layouts.of(FORMATS)
MEMBERS = (3, 5, 1 << 40)


def test_each_slot_is_what_the_document_says(tmp_path: Path) -> None:
    with FaultLog.open(tmp_path, "grün", 5, slots=6) as log:
        log.record(Configuration(1, 0, MEMBERS), viable=True)
        log.record(Configuration(1, 1, MEMBERS, (3, 5)), viable=False)
        log.record(Configuration(1, 2, MEMBERS, (3,)), viable=False)
        log.record(Configuration(1, 2, MEMBERS, (3,)), viable=True)
    ring = (tmp_path / "FAULTS").read_bytes()
    slots = [ring[at : at + 4096] for at in range(0, len(ring), 4096)]
    assert len(slots) == 6
    assert slots[:3] == slots[3:]
    # The fourth record took the place of the first.
    order = [1, 2, 0]
    previous = None
    for serial, slot in enumerate((slots[place] for place in order), 2):
        said = LAYOUTS.head("fault_record", slot)
        assert said["magic"].to_bytes(4, "little") == b"BRFL"
        assert (said["format"], said["serial"], said["node"]) == (1, serial, 5)
        assert (said["epoch"], said["sequence"]) == (1, min(serial - 1, 2))
        assert said["flags"] == (serial == 4)
        assert said["members"] == list(MEMBERS)
        assert said["failed"] == ([3, 5] if serial == 2 else [3])
        assert bytes(said["cluster"]).decode() == "grün"
        digest = hashlib.blake2b(slot[:4064], digest_size=32).digest()
        assert slot[4064:] == digest
        if previous is not None:
            low, high = said["previous"]["low"], said["previous"]["high"]
            linked = low.to_bytes(16, "little") + high.to_bytes(16, "little")
            assert linked == previous
        previous = digest


def test_what_a_rescue_says_is_where_the_document_has_it(tmp_path: Path) -> None:
    state = bytes(range(32))
    with FaultLog.open(tmp_path, "green", 5, slots=6) as log:
        new = Configuration(2, 0, MEMBERS, (3, MEMBERS[2]))
        log.record(new, viable=True, lost=(MEMBERS[2],), state=state)
    with FaultLog.open(tmp_path, "green", 5) as log:
        assert log.newest is not None
        assert (log.newest.lost, log.newest.state) == ((MEMBERS[2],), state)
    slot = (tmp_path / "FAULTS").read_bytes()[:4096]
    assert LAYOUTS.head("fault_record", slot)["format"] == 2
    said = LAYOUTS.head("fault_rescue", slot[4007:])
    assert (said["lost"], said["lost_middle"], said["lost_high"]) == (0b100, 0, 0)
    low, high = said["state"]["low"], said["state"]["high"]
    assert low.to_bytes(16, "little") + high.to_bytes(16, "little") == state
    assert 4007 + LAYOUTS.size("fault_rescue") == 4064
