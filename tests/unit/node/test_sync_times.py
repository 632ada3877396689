"""What a node says of its own syncs."""

from __future__ import annotations

import pytest

from braidlog.node.leader.sync_times import SyncTimes

TICK = 0.05


class Disk:
    """A node that writes now and then, and the time its syncs take."""

    def __init__(self, least: float = 0.005) -> None:
        self.now, self.ticket, self.probes = 50.0, 0, 0
        self.syncs = SyncTimes(self.probed, least, lambda: self.now)

    def probed(self) -> None:
        self.probes += 1

    def sync(self, seconds: float) -> None:
        self.ticket += 1
        self.syncs.wrote(self.ticket, self.ticket)
        self.now += seconds
        self.syncs.synced(self.ticket)
        self.now -= seconds

    def pass_(self, seconds: float, *syncs: float) -> tuple[int, int]:
        """Let time pass; in each tick there are these syncs."""
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            for each in syncs:
                self.sync(each)
            self.syncs.tick()
        return self.syncs.said


def test_it_says_nothing_before_it_knows() -> None:
    disk = Disk()
    assert disk.pass_(10.0) == (0, 0)
    assert disk.pass_(0.5, 0.002) == (2000, 0)
    assert disk.pass_(4.0, 0.002) == (2000, 2000)


def test_what_is_usual_moves_slowly() -> None:
    disk = Disk()
    disk.pass_(5.0, 0.001)
    now, usual = disk.pass_(60.0, 0.05)
    assert now == 50_000
    assert 1000 < usual < 1100
    now, usual = disk.pass_(1.0, 0.001)
    assert now == 1000


def test_a_few_long_syncs_say_nothing_of_the_disk() -> None:
    disk = Disk()
    disk.pass_(5.0, 0.001)
    assert disk.pass_(1.0, 0.001, 0.3, 0.3)[0] == 1000


def test_one_that_hangs_is_said_before_it_ends() -> None:
    disk = Disk()
    disk.pass_(5.0, 0.001)
    disk.syncs.wrote(disk.ticket + 1, disk.ticket + 1)
    now, _ = disk.pass_(2.0)
    assert now == pytest.approx(2_000_000, rel=0.3)


def test_what_nobody_waits_for_does_not_count() -> None:
    disk = Disk()
    disk.pass_(5.0, 0.001)
    disk.syncs.wrote(disk.ticket + 1, disk.ticket)
    assert disk.pass_(5.0)[0] == 1000


def test_the_last_word_stands_while_nothing_is_written() -> None:
    disk = Disk()
    disk.pass_(5.0, 0.001)
    disk.pass_(1.0, 0.03)
    assert disk.pass_(60.0)[0] == 30_000


def test_it_probes_as_long_as_it_has_something_to_show() -> None:
    disk = Disk()
    disk.pass_(5.0, 0.001)
    disk.pass_(5.0)
    assert disk.probes == 0
    disk.pass_(1.0, 0.03)
    before = disk.probes
    disk.pass_(2.0)
    assert 6 <= disk.probes - before <= 8
    disk.pass_(1.0, 0.001)
    before = disk.probes
    disk.pass_(5.0)
    assert disk.probes == before


def test_where_nobody_is_slow_nothing_is_probed() -> None:
    disk = Disk(least=0.0)
    disk.pass_(5.0, 0.001)
    disk.pass_(5.0, 0.03)
    disk.pass_(5.0)
    assert disk.probes == 0


def test_metrics_count_each_turn_once_when_all_it_wrote_is_durable() -> None:
    now, seen = [0.0], list[float]()
    syncs = SyncTimes(lambda: None, 0.005, lambda: now[0], seen.append)
    for ticket in (1, 5, 9):
        syncs.wrote(ticket, 0)
        now[0] += 1
    syncs.synced(4)
    assert seen == [3.0]
    syncs.synced(9)
    syncs.synced(9)
    assert seen == [3.0, 2.0, 1.0]
    # Nobody waited for one of them.
    assert syncs.said == (0, 0)


def test_turns_behind_many_that_wait_are_not_counted_but_said() -> None:
    now, seen = [0.0], list[float]()
    syncs = SyncTimes(lambda: None, 0.005, lambda: now[0], seen.append)
    for ticket in range(1, 5000):
        syncs.wrote(ticket, int(ticket > 2000))
    now[0] += 0.3
    # Those that are counted first, then the one that somebody waited for.
    syncs.synced(1024)
    assert len(seen) == 1024
    syncs.synced(5000)
    assert len(seen) == 1024
    now[0] += 1.0
    syncs.tick()
    assert syncs.said[0] == 300_000
