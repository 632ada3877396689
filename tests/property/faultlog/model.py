"""Every history of a small cluster with fault logs, and what a rescue does in each.

A state is what is on the disks: nodes that are down are nodes that take no step, so a
crash at any moment, of any nodes, is a state like any other. In each one the rule is
asked for every set of nodes that may be present. The steps:

    fail      the repository decides that one more node failed
    record    a node writes the newest configuration down
    discard   a node that recorded its own failure loses its log
    unlist    the repository stops listing it
    copy      it copies what a viable node has
    mark      it records itself as viable
    append    a record reaches one node, or all and is acknowledged
    rescue    the repository is lost for good; some are present, one decision is taken
    write     one valid node gets the record of the rescue; after all, a new repository
    fork      two sides go on without each other (then only a full set is asked)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from braidlog.faultlog import (
    Configuration,
    Decision,
    FaultRecord,
    Verdict,
)


class Ring(NamedTuple):
    """The newest record of a node; `failed` is a set of bits."""

    epoch: int
    sequence: int
    failed: int
    viable: bool

    def of(self, decided: Decided, node: int) -> Ring:
        """Return the record with which the node takes this over."""
        viable = self.viable and not decided.failed >> node & 1
        return Ring(*decided, viable)

    @property
    def decided(self) -> Decided:
        return Decided(*self[:3])


class Decided(NamedTuple):
    """A configuration."""

    epoch: int
    sequence: int
    failed: int


class State(NamedTuple):
    repository: Decided
    rings: tuple[Ring, ...]
    logs: tuple[int, ...]
    """Records of each node, as bits."""
    copied: int = 0
    """Nodes that have everything again and did not say so yet."""
    acknowledged: int = 0
    appended: int = 0
    failures: int = 0
    returns: int = 0
    rescues: int = 0
    pending: int = 0
    """Valid nodes that lack the record of the rescue; the repository is lost."""
    forked: bool = False


@dataclass(frozen=True)
class Bounds:
    nodes: int = 3
    records: int = 2
    failures: int = 2
    returns: int = 1
    rescues: int = 1
    forks: bool = False


Rule = Callable[[Mapping[int, FaultRecord], Mapping[int, int]], Verdict]
"""Takes the newest records, and how many records the log of each node has."""


@dataclass(frozen=True)
class Protocol:
    """What nodes and repository do; each switch breaks one thing."""

    acts_before_recording: bool = False
    unlists_first: bool = False
    listed_record_at_once: bool = False
    copies_while_listed: bool = False
    keeps_viability: bool = False
    epoch_step: int = 1
    sequence_of_rescue: Callable[[int], int] = lambda _: 0


class Violation(Exception):
    """What a state shows, and the steps to it."""


class Kind(Enum):
    LOSS = "a valid node lacks an acknowledged record"
    NUMBER = "the new configuration does not supersede every record"
    CHOICE = "two sets of nodes that are present lead to two decisions"
    LIVENESS = "all are present and nothing is decided"


@dataclass
class Model:
    bounds: Bounds
    rule: Rule
    protocol: Protocol = field(default_factory=Protocol)
    kinds: frozenset[Kind] = frozenset(Kind)
    """What to look for."""
    sees_logs: bool = False
    """Whether the rule gets the lengths of logs; else they are 0."""

    def __post_init__(self) -> None:
        self._all = (1 << self.bounds.nodes) - 1
        self._nodes = range(self.bounds.nodes)
        self._records: dict[tuple[int, Ring], FaultRecord] = {}
        self._verdicts: dict[object, tuple[Verdict, ...]] = {}

    def explore(self) -> int:
        """Visit every state; return how many there are.

        Raises:
            Violation: A state breaks a property.
        """
        first = Decided(1, 0, 0)
        start = State(
            first,
            (Ring(*first, True),) * self.bounds.nodes,
            (0,) * self.bounds.nodes,
        )
        came: dict[State, tuple[State, str] | None] = {start: None}
        frontier = [start]
        while frontier:
            following = []
            for state in frontier:
                for kind in self.problems(state):
                    if kind in self.kinds:
                        raise Violation(kind, _path(came, state))
                for step, successor in self.steps(state):
                    if successor not in came:
                        came[successor] = (state, step)
                        following.append(successor)
            frontier = following
        return len(came)

    # What must hold.

    def problems(self, state: State) -> Iterator[Kind]:
        verdicts = self.verdicts(state)
        if state.forked:
            verdicts = verdicts[-1:]
        elif not isinstance(verdicts[-1], Decision):
            yield Kind.LIVENESS
        chosen = set()
        for verdict in verdicts:
            if not isinstance(verdict, Decision):
                continue
            chosen.add(verdict.valid)
            if any(state.acknowledged & ~state.logs[n - 1] for n in verdict.valid):
                yield Kind.LOSS
            new = self._new(verdict)
            if any(new[:2] <= ring[:2] for ring in state.rings):
                yield Kind.NUMBER
        if len(chosen) > 1:
            yield Kind.CHOICE

    def verdicts(self, state: State) -> tuple[Verdict, ...]:
        """Ask the rule for each set of nodes that are present, the full one last."""
        lengths = (0,) * self.bounds.nodes
        if self.sees_logs:
            lengths = tuple(log.bit_count() for log in state.logs)
        key = (state.rings, lengths)
        if key not in self._verdicts:
            self._verdicts[key] = tuple(
                self._ask(present, state.rings, lengths)
                for present in range(1, self._all + 1)
            )
        return self._verdicts[key]

    def _ask(
        self, present: int, rings: tuple[Ring, ...], lengths: tuple[int, ...]
    ) -> Verdict:
        here = [node for node in self._nodes if present >> node & 1]
        records = {node + 1: self._record(node, rings[node]) for node in here}
        return self.rule(records, {node + 1: lengths[node] for node in here})

    def _record(self, node: int, ring: Ring) -> FaultRecord:
        if (node, ring) not in self._records:
            members = tuple(other + 1 for other in self._nodes)
            failed = tuple(o + 1 for o in self._nodes if ring.failed >> o & 1)
            self._records[node, ring] = FaultRecord(
                cluster="model",
                node=node + 1,
                configuration=Configuration(ring.epoch, ring.sequence, members, failed),
                viable=ring.viable,
            )
        return self._records[node, ring]

    # What may happen.

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.forked:
            return
        yield from self._rescues(state)
        yield from self._marks(state)
        if state.pending:
            yield from self._writes(state)
            return
        yield from self._decisions(state)
        yield from self._node_steps(state)
        yield from self._appends(state)
        if self.bounds.forks:
            yield from self._forks(state)

    def _live(self, decided: Decided) -> list[int]:
        return [node for node in self._nodes if not decided.failed >> node & 1]

    def _decisions(self, state: State) -> Iterator[tuple[str, State]]:
        epoch, sequence, failed = state.repository
        for node in self._nodes:
            bit = 1 << node
            if not failed & bit and state.failures < self.bounds.failures:
                decided = Decided(epoch, sequence + 1, failed | bit)
                if any(state.rings[other].viable for other in self._live(decided)):
                    yield (
                        f"fail {node + 1}",
                        state._replace(repository=decided, failures=state.failures + 1),
                    )
            if failed & bit and state.returns < self.bounds.returns:
                ring = state.rings[node]
                recorded = ring.decided == state.repository and not ring.viable
                if recorded or self.protocol.unlists_first:
                    decided = Decided(epoch, sequence + 1, failed & ~bit)
                    yield (
                        f"unlist {node + 1}",
                        state._replace(repository=decided, returns=state.returns + 1),
                    )

    def _node_steps(self, state: State) -> Iterator[tuple[str, State]]:
        repository = state.repository
        for node in self._nodes:
            ring, bit = state.rings[node], 1 << node
            if ring[:2] < repository[:2] and self._may_record(state, node):
                new = ring.of(repository, node)
                if self.protocol.keeps_viability and not repository.failed & bit:
                    new = new._replace(viable=True)
                copied = (
                    state.copied & ~bit if repository.failed & bit else state.copied
                )
                rings = _with(state.rings, node, new)
                yield (
                    f"record {node + 1}",
                    state._replace(rings=rings, copied=copied),
                )
            if ring.viable:
                continue
            if ring.failed & bit and state.logs[node]:
                logs = _with(state.logs, node, 0)
                yield f"discard {node + 1}", state._replace(logs=logs)
            if repository.failed & bit and not self.protocol.copies_while_listed:
                continue
            if ring.decided == repository and not state.copied & bit:
                for source in self._live(repository):
                    other = state.rings[source]
                    if other.viable and other.decided == repository:
                        log = state.logs[node] | state.logs[source]
                        logs = _with(state.logs, node, log)
                        yield (
                            f"copy {source + 1} to {node + 1}",
                            state._replace(logs=logs, copied=state.copied | bit),
                        )

    def _may_record(self, state: State, node: int) -> bool:
        """Let those with a viable log go first."""
        first = [n for n in self._live(state.repository) if state.rings[n].viable]
        return (
            node in first
            or self.protocol.listed_record_at_once
            or all(state.rings[n].decided == state.repository for n in first)
        )

    def _marks(self, state: State) -> Iterator[tuple[str, State]]:
        for node in self._nodes:
            if state.copied >> node & 1 and not state.rings[node].failed >> node & 1:
                ring = state.rings[node]._replace(viable=True)
                rings = _with(state.rings, node, ring)
                copied = state.copied & ~(1 << node)
                yield f"mark {node + 1}", state._replace(rings=rings, copied=copied)

    def _appends(self, state: State) -> Iterator[tuple[str, State]]:
        if state.appended == self.bounds.records:
            return
        bit = 1 << state.appended
        some = state._replace(appended=state.appended + 1)
        # Members that have not heard of the newest configuration go on in theirs.
        acting = {ring.decided for ring in state.rings} | {state.repository}
        for decided in sorted(acting):
            live = self._live(decided)
            for node in live:
                if state.rings[node].decided == decided:
                    logs = _with(state.logs, node, state.logs[node] | bit)
                    yield f"append to {node + 1}", some._replace(logs=logs)
            recorded = all(state.rings[node].decided == decided for node in live)
            unrecorded = self.protocol.acts_before_recording
            if recorded or (unrecorded and decided == state.repository):
                logs = tuple(
                    log | bit if node in live else log
                    for node, log in enumerate(state.logs)
                )
                yield (
                    f"append to all of {decided}",
                    some._replace(logs=logs, acknowledged=state.acknowledged | bit),
                )

    def _new(self, verdict: Decision) -> Decided:
        authority = verdict.authority.configuration
        failed = sum(1 << node - 1 for node in verdict.configuration.failed)
        return Decided(
            authority.epoch + self.protocol.epoch_step,
            self.protocol.sequence_of_rescue(authority.sequence),
            failed,
        )

    def _rescues(self, state: State) -> Iterator[tuple[str, State]]:
        if state.rescues == self.bounds.rescues:
            return
        for present, verdict in enumerate(self.verdicts(state), 1):
            if isinstance(verdict, Decision):
                yield (
                    f"rescue with {present:b}",
                    state._replace(
                        repository=self._new(verdict),
                        pending=sum(1 << node - 1 for node in verdict.valid),
                        rescues=state.rescues + 1,
                    ),
                )

    def _writes(self, state: State) -> Iterator[tuple[str, State]]:
        for node in self._nodes:
            if state.pending >> node & 1:
                ring = Ring(*state.repository, True)
                yield (
                    f"write {node + 1}",
                    state._replace(
                        rings=_with(state.rings, node, ring),
                        pending=state.pending & ~(1 << node),
                    ),
                )

    def _forks(self, state: State) -> Iterator[tuple[str, State]]:
        epoch, sequence, _ = state.repository
        live = [n for n in self._live(state.repository) if state.rings[n].viable]
        for one in live:
            for other in live:
                if one < other:
                    rings, logs = list(state.rings), list(state.logs)
                    for at, node in enumerate((one, other)):
                        failed = self._all & ~(1 << node)
                        rings[node] = Ring(epoch, sequence + 1, failed, True)
                        logs[node] |= 1 << self.bounds.records + at
                    yield (
                        f"fork {one + 1} {other + 1}",
                        state._replace(
                            rings=tuple(rings),
                            logs=tuple(logs),
                            acknowledged=state.acknowledged | 3 << self.bounds.records,
                            forked=True,
                        ),
                    )


def _with(items: tuple, at: int, item: object) -> tuple:  # type: ignore[type-arg]
    return (*items[:at], item, *items[at + 1 :])


def _path(came: Mapping[State, tuple[State, str] | None], state: State) -> list[str]:
    steps = []
    while before := came[state]:
        state, step = before
        steps.append(step)
    return steps[::-1]
