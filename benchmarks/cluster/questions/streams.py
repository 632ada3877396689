"""Do 2 and 4 streams take more than one, with 64 callers for each of them?"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks import data
from benchmarks.cluster import load
from benchmarks.cluster.fleet import Run
from benchmarks.cluster.load import Bound
from benchmarks.cluster.systems import OURS, PEERS, SYSTEMS
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better, Target
from benchmarks.timing import Figures

_TASKS = 64
_MANY = (2, 4)


@dataclass(frozen=True, slots=True)
class Streams:
    """The same with more streams; the floor is one of ours."""

    NAME: str = "streams"

    def contestants(self, run: Run) -> list[Contestant]:
        """Return ours, and the peers that have such a thing."""
        made = [self._contestant(run, OURS, Kind.FLOOR, 1)]
        for count in _MANY:
            made.append(self._contestant(run, OURS, Kind.OURS, count))
            made += [self._contestant(run, name, Kind.PEER, count) for name in _peers()]
        return made

    def _contestant(self, run: Run, name: str, kind: Kind, count: int) -> Contestant:
        start = partial(self._start, name, run, count)
        return Contestant(f"{name} {count}", kind, start)

    def _start(self, name: str, run: Run, streams: int, stack: ExitStack) -> Measure:
        client = run.fleet.open(name, f"{self.NAME}-{streams}", streams, stack)
        value = data.value(run.plan.seed, 128)
        bound = Bound(run.plan.appends * streams, run.plan.seconds)

        def measure() -> Figures:
            work = load.callers(client, value, bound, _TASKS * streams)
            return run.fleet.loop.run(work).figures()

        return measure

    def comparisons(self, _: Run) -> list[Comparison]:
        """Return a row for each number of streams."""
        return [
            Comparison(
                f"128 B, {count} streams, {_TASKS} outstanding each",
                "per_second",
                "/s",
                Better.HIGHER,
                ours=f"{OURS} {count}",
                target=Target(1.0),
                floor=f"{OURS} 1",
                peers=[f"{name} {count}" for name in _peers()],
                note="floor: one stream of ours with 64 outstanding",
            )
            for count in _MANY
        ]


def _peers() -> list[str]:
    return [name for name in PEERS if SYSTEMS[name].streams]
