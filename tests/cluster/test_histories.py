"""What clients are told while nodes fail could be told by one log; see `faults`."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from cluster import volatile
from cluster.faults import Report
from cluster.faults import run as break_nodes
from cluster.upgrade import BEFORE, tree_of
from cluster.upgrade import run as upgrade

ROUNDS = int(os.environ.get("BRAIDLOG_ROUNDS", "0"))
SEED = int(os.environ.get("BRAIDLOG_SEED", "0")) or random.randrange(1, 1_000_000)


def judge(report: Report) -> None:
    print(report)  # noqa: T201, RUF100
    assert not report.violation, report
    assert report.looks > 0


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_calls_are_linearizable_where_the_power_fails(tmp_path: Path) -> None:
    if why := volatile.why_not():
        pytest.skip(why)
    judge(break_nodes(Report(SEED, 3), ROUNDS or 4, tmp_path, volatile=True))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("nodes", [3, 5])
def test_calls_are_linearizable_for_long(tmp_path: Path, nodes: int) -> None:
    judge(break_nodes(Report(SEED, nodes), ROUNDS or 100, tmp_path))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_calls_are_linearizable_on_disks_without_power(tmp_path: Path) -> None:
    if why := volatile.why_not():
        pytest.skip(why)
    judge(break_nodes(Report(SEED, 3), ROUNDS or 100, tmp_path, volatile=True))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_nodes_are_replaced_by_this_version_under_load(tmp_path: Path) -> None:
    old = tree_of(BEFORE, tmp_path / "built")
    judge(upgrade(Report(SEED, 3), ROUNDS or 10, tmp_path / "run", old))
