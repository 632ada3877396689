"""Every planted bug is noticed, by its script or by the simulation."""

import pytest

from property.raft.checkers import ViolationError
from property.raft.mutations import PLANTED, Planted
from property.raft.simulation import STORMS, run
from unit.raft.test_scripts import SCRIPTS, replay

SEEDS = 60  # most are found in the first ten
TEXTS = {path.stem: path.read_text() for path in SCRIPTS}


def violates(seed: int, storm: str) -> bool:
    try:
        run(seed, storm=STORMS[storm])
    except ViolationError:
        return True
    return False


@pytest.mark.parametrize(
    "planted", [p for p in PLANTED if p.script], ids=lambda planted: planted.name
)
def test_the_script_shows_it(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    planted.mutate(monkeypatch)
    assert replay(TEXTS[planted.script]) != TEXTS[planted.script]


@pytest.mark.parametrize(
    "planted", [p for p in PLANTED if p.storm], ids=lambda planted: planted.name
)
def test_the_simulation_finds_it(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.mutate(monkeypatch)
    assert any(violates(seed, planted.storm) for seed in range(SEEDS))


def test_each_is_looked_for() -> None:
    assert [p.name for p in PLANTED if not (p.script or p.storm)] == []
