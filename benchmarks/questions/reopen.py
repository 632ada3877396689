"""How long does opening take, after little and after much was written?

Every round a child process appends some more and is killed; the open after that
recovers, the next one follows a clean close. Opening ends when the newest record has
been read: a store that opens lazily gains nothing. The bytes appended each round are no
divisor of a segment, so that the rounds meet tails of different length.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks import embedded, writer
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.embedded import Embedded
from benchmarks.peers import PEERS
from benchmarks.plan import MIB, Plan
from benchmarks.rows import Better, Target
from benchmarks.timing import Figures

NAME = "reopen"
_TAIL_BYTES = 24 * MIB
_OPENS = 3
"""Clean opens in a round; the fastest counts."""
_SMALL, _LARGE = "small", "large"


def contestants(plan: Plan) -> list[Contestant]:
    """Return every store at both sizes."""
    kinds = [(Embedded.name, Kind.OURS), *((each.name, Kind.PEER) for each in PEERS)]
    return [
        Contestant(f"{name} {label}", kind, partial(_start, plan, name, label))
        for name, kind in kinds
        for label in (_SMALL, _LARGE)
    ]


def _bytes(plan: Plan, name: str, label: str) -> int:
    if label == _SMALL:
        return plan.reopen_small
    return plan.reopen_large if name == Embedded.name else plan.peer_reopen_large


def _start(plan: Plan, name: str, label: str, _: ExitStack) -> Measure:
    if name == Embedded.name:
        embedded.api()
    directory = plan.directory / NAME / f"{name}-{label}"
    writer.write(name, directory, _bytes(plan, name, label), kill=False)
    return partial(_measure, name, directory)


def _measure(name: str, directory: Path) -> Figures:
    writer.write(name, directory, _TAIL_BYTES, kill=True)
    return {
        "killed_ms": _open_ms(name, directory),
        "clean_ms": min(_open_ms(name, directory) for _ in range(_OPENS)),
    }


def _open_ms(name: str, directory: Path) -> float:
    begin = perf_counter()
    store = writer.STORES[name](directory)
    position = store.last()
    took = (perf_counter() - begin) * 1e3
    store.close()
    if not position:
        raise AssertionError(f"{name} opened empty")
    return took


def comparisons(plan: Plan) -> list[Comparison]:
    """Return large against small for ours, and ours against the peers."""
    small, large = (
        f"{size // MIB:,} MiB" for size in (plan.reopen_small, plan.reopen_large)
    )
    peers = f"peers after {plan.peer_reopen_large // MIB:,} MiB"
    ends = {"killed_ms": "after a kill", "clean_ms": "after a clean close"}
    row = partial(Comparison, unit="ms", better=Better.LOWER)
    growth = [
        row(
            f"open {end}: {large} against {small}",
            metric,
            ours="braidlog large",
            floor="braidlog small",
            target=Target(2),
            note=f"floor: ours after {small}",
        )
        for metric, end in ends.items()
    ]
    against = [
        row(
            f"open {end}, {large}",
            metric,
            ours="braidlog large",
            peers=[f"{each.name} large" for each in PEERS],
            note=peers,
        )
        for metric, end in ends.items()
    ]
    return [*growth, *against]
