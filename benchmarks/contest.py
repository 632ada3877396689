"""Run contestants in interleaved rounds and compare them.

Machine noise comes and goes over seconds. Every round therefore measures the floor,
ours and all peers one after another, beginning with another one each time, and a ratio
is taken within a round; what is reported is the median ratio over the rounds, with the
smallest and the largest.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Protocol, TypeVar

from benchmarks.rows import Better, Row, Target
from benchmarks.timing import Figures

Measure = Callable[[], Figures]


_STEADY = 2
"""A floor that varies more over the rounds says that the machine is busy."""


class Unavailable(Exception):
    """A contestant cannot take part here; the text says why."""


class Kind(StrEnum):
    """Whose figures these are."""

    FLOOR = "floor"
    OURS = "ours"
    PEER = "peer"


@dataclass(frozen=True, slots=True)
class Contestant:
    """Someone who can be measured once a round."""

    name: str
    kind: Kind
    start: Callable[[ExitStack], Measure]
    """Open and fill what is needed; not timed."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One row to be made of the samples: who is compared with whom, on which metric."""

    workload: str
    metric: str
    unit: str
    better: Better
    ours: str
    target: Target | None = None
    floor: str | None = None
    floor_metric: str | None = None
    peers: Sequence[str] = ()
    beside: Sequence[str] = ()
    """Others that promise less: their figures are shown, and compared with nothing."""
    note: str = ""


class Rounds(Protocol):
    """A plan, as far as it concerns this module."""

    @property
    def rounds(self) -> int:
        """Return how many rounds count."""
        ...


P = TypeVar("P", bound=Rounds)
P_contra = TypeVar("P_contra", bound=Rounds, contravariant=True)


class Question(Protocol[P_contra]):
    """One question: who takes part, and what is made of it.

    With `ROUNDS` it has its own number of rounds that count.
    """

    NAME: str

    def contestants(self, plan: P_contra) -> Sequence[Contestant]:
        """Return everybody that takes part."""
        ...

    def comparisons(self, plan: P_contra) -> Sequence[Comparison]:
        """Return the rows to make."""
        ...


@dataclass(slots=True)
class Samples:
    """Figures by contestant, one entry a round, and why somebody has none."""

    rounds: dict[str, list[Figures]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def values(self, name: str | None, metric: str) -> list[float]:
        """Return one metric of one contestant over the rounds."""
        return [
            figures[metric]
            for figures in self.rounds.get(name or "", [])
            if metric in figures
        ]


def run(
    question: Question[P], plan: P, progress: Callable[[str], None]
) -> tuple[list[Row], Samples]:
    """Measure one question and return its rows."""
    samples = Samples()
    with ExitStack() as stack:
        ready = _start(question, plan, stack, samples, progress)
        rounds = getattr(question, "ROUNDS", plan.rounds)
        for turn in range(-1, rounds):
            step = f"round {turn + 1} of {rounds}" if turn >= 0 else "warm-up"
            progress(f"{question.NAME}: {step}")
            _round(ready, turn, samples)
    return [compare(each, samples) for each in question.comparisons(plan)], samples


def _start(
    question: Question[P],
    plan: P,
    stack: ExitStack,
    samples: Samples,
    progress: Callable[[str], None],
) -> dict[str, Measure]:
    ready: dict[str, Measure] = {}
    for each in question.contestants(plan):
        progress(f"{question.NAME}: preparing {each.name}")
        try:
            ready[each.name] = each.start(stack)
        except Unavailable as reason:
            samples.absent[each.name] = f"skipped: {reason}"
        except Exception as error:
            _fail(samples, each.name, error)
    return ready


def _round(ready: dict[str, Measure], turn: int, samples: Samples) -> None:
    names = list(ready)
    shift = turn % len(names) if names else 0
    for name in names[shift:] + names[:shift]:
        try:
            figures = ready[name]()
        except Unavailable as reason:
            samples.absent[name] = f"skipped: {reason}"
            del ready[name]
        except Exception as error:
            _fail(samples, name, error)
            del ready[name]
        else:
            if turn >= 0:
                samples.rounds.setdefault(name, []).append(figures)


def _fail(samples: Samples, name: str, error: Exception) -> None:
    samples.absent[name] = f"FAILED: {type(error).__name__}: {error}"
    samples.failed.add(name)
    samples.rounds.pop(name, None)


def compare(spec: Comparison, samples: Samples) -> Row:
    """Make one row: medians of the figures, medians of the ratios within each round."""
    ours = samples.values(spec.ours, spec.metric)
    floor = samples.values(spec.floor, spec.floor_metric or spec.metric)
    peers = _medians(spec.peers, spec.metric, samples)
    best = _best(peers, spec.better)
    to_floor = _ratios(ours, floor)
    to_peer = _ratios(ours, samples.values(best, spec.metric))
    ours_median, ratio = _median(ours), _median(to_floor)
    peer_ratio = _median(to_peer)
    target = spec.target
    return Row(
        workload=spec.workload,
        metric=spec.metric,
        ours=ours_median,
        floor=_median(floor),
        floor_name=spec.floor,
        floor_spread=_spread(floor),
        best_peer=peers[best] if best else None,
        best_peer_name=best,
        ratio_to_floor=ratio,
        ratio_to_peer=peer_ratio,
        target=target.text(spec.better, spec.unit) if target else "",
        met=target.met(spec.better, ours_median, ratio) if target else None,
        ahead=_ahead(peer_ratio, spec.better),
        unit=spec.unit,
        better=spec.better,
        spread_to_floor=_spread(to_floor),
        spread_to_peer=_spread(to_peer),
        peers=peers,
        beside=_medians(spec.beside, spec.metric, samples),
        note=_note(spec, samples),
    )


def _medians(names: Sequence[str], metric: str, samples: Samples) -> dict[str, float]:
    return {
        name: median(values)
        for name in names
        if (values := samples.values(name, metric))
    }


def _best(peers: dict[str, float], better: Better) -> str | None:
    if not peers:
        return None
    choose = min if better is Better.LOWER else max
    return choose(peers, key=lambda name: peers[name])


def _ratios(ours: list[float], other: list[float]) -> list[float]:
    return [mine / theirs for mine, theirs in zip(ours, other, strict=False) if theirs]


def _median(values: list[float]) -> float | None:
    return median(values) if values else None


def _spread(values: list[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if values else None


def _ahead(ratio: float | None, better: Better) -> bool | None:
    if ratio is None:
        return None
    return ratio <= 1 if better is Better.LOWER else ratio >= 1


def _note(spec: Comparison, samples: Samples) -> str:
    names = [spec.ours, *([spec.floor] if spec.floor else [])]
    names += [*spec.peers, *spec.beside]
    parts = [spec.note, _steadiness(spec, samples)]
    parts += [
        f"{name} {samples.absent[name]}" for name in names if name in samples.absent
    ]
    return "; ".join(filter(None, parts))


def _steadiness(spec: Comparison, samples: Samples) -> str:
    floor = samples.values(spec.floor, spec.floor_metric or spec.metric)
    if not floor or max(floor) <= _STEADY * min(floor):
        return ""
    return f"UNSTEADY: the floor varied more than {_STEADY}-fold ({spec.metric})"
