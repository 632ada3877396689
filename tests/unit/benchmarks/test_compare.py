from pathlib import Path
from typing import NoReturn

import pytest
from benchmarks import contest, timing
from benchmarks.contest import Comparison, Contestant, Kind, Samples, Unavailable
from benchmarks.plan import Plan
from benchmarks.rows import Against, Better, Target

LATENCY = Comparison(
    "w",
    "p50_us",
    "us",
    Better.LOWER,
    ours="ours",
    floor="floor",
    peers=["slow", "fast"],
    target=Target(1.25),
)


def samples(**rounds: list[float]) -> Samples:
    return Samples(
        {name: [{"p50_us": one} for one in values] for name, values in rounds.items()}
    )


def test_a_ratio_is_the_median_of_the_ratios_within_each_round() -> None:
    # Medians alone would say 20 / 30; noise in round 2 hit both alike.
    row = contest.compare(LATENCY, samples(ours=[11, 220, 20], floor=[10, 200, 30]))
    assert row.ratio_to_floor == pytest.approx(1.1)
    assert row.spread_to_floor == pytest.approx((2 / 3, 1.1))
    assert row.met is True
    assert "UNSTEADY" in row.note


def test_the_best_peer_depends_on_the_direction() -> None:
    row = contest.compare(LATENCY, samples(ours=[5], slow=[9], fast=[4]))
    assert (row.best_peer_name, row.best_peer) == ("fast", 4)
    assert row.ahead is False
    assert row.missed


def test_a_target_without_a_figure_is_neither_met_nor_missed() -> None:
    row = contest.compare(LATENCY, samples(floor=[1]))
    assert row.met is None
    assert row.unmeasured
    assert not row.missed


@pytest.mark.parametrize(
    ("better", "figure", "met"),
    [
        (Better.LOWER, 10, True),
        (Better.LOWER, 10.1, False),
        (Better.HIGHER, 10, True),
        (Better.HIGHER, 9.9, False),
    ],
)
def test_a_bound_belongs_to_the_target(
    better: Better, figure: float, met: bool
) -> None:
    assert Target(10, Against.VALUE).met(better, figure, None) is met


def test_percentiles_are_nearest_rank() -> None:
    assert timing.percentile(range(1, 101), 99) == 99
    assert timing.percentile([7.0], 99) == 7.0


class Question:
    """Three contestants: one counts its turns, one cannot take part, one breaks."""

    NAME = "question"

    def __init__(self) -> None:
        self.turns: list[str] = []

    def contestants(self, plan: Plan) -> list[Contestant]:
        def measured(name: str) -> Contestant:
            return Contestant(name, Kind.PEER, lambda _: lambda: self.turn(name))

        def refuse(_: object) -> NoReturn:
            raise Unavailable("not here")

        return [
            *map(measured, ("ours", "floor", "broken")),
            Contestant("absent", Kind.PEER, refuse),
        ]

    def turn(self, name: str) -> timing.Figures:
        self.turns.append(name)
        if name == "broken":
            raise ValueError("no")
        return {"p50_us": float(len(self.turns))}

    def comparisons(self, plan: Plan) -> list[Comparison]:
        return [
            Comparison(
                "w", "p50_us", "us", Better.LOWER, "ours", peers=["absent", "broken"]
            )
        ]


def test_rounds_take_turns_and_a_failure_is_said() -> None:
    question = Question()
    plan = Plan(Path(), rounds=2)
    [row], found = contest.run(question, plan, lambda _: None)
    assert [name for name in question.turns if name != "broken"] == [
        *("ours", "floor"),  # warm-up, which does not count
        *("ours", "floor"),
        *("floor", "ours"),
    ]
    assert len(found.values("ours", "p50_us")) == 2
    assert row.note == "absent skipped: not here; broken FAILED: ValueError: no"
    assert found.failed == {"broken"}


def test_those_that_promise_less_are_shown_and_not_compared() -> None:
    samples = Samples()
    for name, value in (("ours", 10.0), ("peer", 5.0), ("hasty", 90.0)):
        samples.rounds[name] = [{"per_second": value}]
    row = contest.compare(
        Comparison(
            "work",
            "per_second",
            "/s",
            Better.HIGHER,
            ours="ours",
            peers=["peer"],
            beside=["hasty", "missing"],
        ),
        samples,
    )
    assert (row.best_peer_name, row.ahead) == ("peer", True)
    assert row.beside == {"hasty": 90.0}
