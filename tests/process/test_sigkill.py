"""Nothing that was acknowledged is lost when writers are killed; see `sigkill`."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import braidlog
from braidlog.errors import CorruptionError
from cluster import volatile
from process.sigkill import Carnage

KILLS = int(os.environ.get("BRAIDLOG_KILLS", "12"))
SEED = int(os.environ.get("BRAIDLOG_SEED", "0")) or random.randrange(1, 1_000_000)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * KILLS)
def test_killed_writers_lose_nothing(tmp_path: Path) -> None:
    print(f"BRAIDLOG_SEED={SEED}")  # noqa: T201, RUF100
    tally = Carnage(tmp_path / "data", SEED).run(KILLS)
    print(tally)  # noqa: T201, RUF100
    assert tally.kills == KILLS
    assert tally.acknowledged > 0
    assert tally.followed > 0


_LARGE = random.Random(SEED).randbytes(8192)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[volatile.VolatileDisk]:
    if why := volatile.why_not():
        pytest.skip(why)
    with volatile.VolatileDisk(tmp_path / "disk") as found:
        yield found


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * KILLS)
def test_power_cuts_lose_nothing(tmp_path: Path, disk: volatile.VolatileDisk) -> None:
    print(f"BRAIDLOG_SEED={SEED}")  # noqa: T201, RUF100
    tally = Carnage(tmp_path / "disk" / "data", SEED, disk).run(KILLS)
    assert tally.acknowledged > 0


@pytest.mark.process
def test_a_disk_that_lies_about_syncs_is_found_out(
    tmp_path: Path, disk: volatile.VolatileDisk
) -> None:
    data = tmp_path / "disk" / "data"
    with braidlog.open(data) as node:
        node.create_log("l").append(b"durable")
    disk.cut(SEED)
    with braidlog.open(data) as node:
        assert [each.value for each in node.log("l").read()] == [b"durable"]
        disk.lie()
        for _ in range(100):
            # In blocks of its own: a cut that keeps one write must not keep them all.
            node.log("l").append(_LARGE)
    disk.cut(SEED)
    try:
        with braidlog.open(data, read_only=True) as node:
            # A checkpoint that was kept says how long the log was, not what is left.
            assert len(list(node.log("l").read())) < 101
    except CorruptionError:
        pass  # Refused is noticed, too.
