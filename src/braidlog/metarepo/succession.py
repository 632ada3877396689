"""What a rescue carries over of the metadata repository that is lost.

*Theory of operation.* Every member of the repository's Raft group has a log on its
disk. Of those that are left, the one that would win an election is the one to go by:
its last entry has the greatest term, and of these the greatest index. Whatever a
majority had is in the best log of any majority. So a rescue that has one carries over
everything that was answered; with fewer it carries over what there is, and says so.
Entries that are not known to be committed are kept: a leader would have done the same.

The state that comes out of it is a `GroupStart`. The repository that begins anew has it
beside its own, empty one, and takes logs and streams out of it when all valid nodes
have said what they hold: `braidlog.metarepo.machine.adoption`.

*Invariants.* A group of a later fault epoch comes before all of earlier ones: it was
made from them. The same copies give the same seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from braidlog.faultlog.configuration import Configuration
from braidlog.faultlog.record import FaultRecord
from braidlog.metarepo.machine.faults import first
from braidlog.metarepo.machine.repository import Repository
from braidlog.metarepo.machine.state import State, decode_state, encode_state
from braidlog.raft import Base, Entry, EntryKind, Membership, Stored
from braidlog.raft.log import memberships_of
from braidlog.raft.quorum import agreed, holds
from braidlog.wire.commands import decode_call

_RESCUED: Final = 1


@dataclass(frozen=True, slots=True)
class Copy:
    """The log of the repository as one node has it."""

    node: int
    group: int
    """Number of the Raft group: the fault epoch in which it began."""
    stored: Stored
    """Its entries are a sequence, not an iterator."""

    @property
    def entries(self) -> Sequence[Entry]:
        """Return the entries behind the base."""
        base = self.stored.base.index
        return [entry for entry in self.stored.entries if entry.index > base]

    @property
    def last(self) -> tuple[int, int]:
        """Return term and index of the last entry."""
        entries = self.entries
        if entries:
            return entries[-1].term, entries[-1].index
        return self.stored.base.term, self.stored.base.index


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the copies come to."""

    node: int
    """Whose copy counts."""
    group: int
    """Number of its Raft group: the fault epoch in which it began."""
    index: int
    """Its last entry."""
    proven: int
    """The last entry that is known to be committed."""
    unproven: dict[str, int]
    """Commands behind that, counted by name."""
    voters: tuple[int, ...]
    """Who voted in it."""
    heard: tuple[int, ...]
    """Voters of which there is a copy."""
    complete: bool
    """Whether these are a majority, so that nothing that was answered is missing."""
    state: State


class GroupStart(msgspec.Struct, array_like=True, frozen=True):
    """What a repository that begins anew is given: the same on every voter."""

    epoch: int
    """The fault epoch that it begins."""
    index: int
    """Where its log begins, behind every index that clients may have seen."""
    voters: tuple[int, ...]
    """Valid nodes that voted; none: those that the settings name."""
    complete: bool
    """Whether nothing that the one before answered is missing."""
    state: bytes
    """`State` of the one before."""


def recover(copies: Sequence[Copy]) -> Recovered | None:
    """Return the state of the repository as the copies have it; None without any.

    Raises:
        CorruptionError: what is stored cannot be read.
        RepositoryInvariantError: what is stored cannot be.
    """
    groups = [copy.group for copy in copies]
    same = [copy for copy in copies if copy.group == max(groups)]
    if not same:
        return None
    best = max(same, key=lambda copy: (copy.last, -copy.node))
    entries = best.entries
    membership = best.stored.base.membership
    if memberships := memberships_of(entries):
        membership = memberships[-1]
    # Who has only an earlier group never had anything of this one.
    heard = {copy.node for copy in copies} & membership.electors
    proven = max(_known(same), _agreed(best, same, membership))
    proven = min(proven, best.last[1])
    return Recovered(
        node=best.node,
        group=best.group,
        index=best.last[1],
        proven=proven,
        unproven=_names(entry for entry in entries if entry.index > proven),
        voters=tuple(sorted(membership.electors)),
        heard=tuple(sorted(heard)),
        complete=holds(membership.halves, heard),
        state=_settled(_replay(best.stored.base, entries)),
    )


def recover_members(
    records: Sequence[FaultRecord], copies: Sequence[tuple[FaultRecord, Copy]]
) -> Recovered | None:
    """As `recover`, of copies beside the newest fault record of their nodes.

    `records` are those of all nodes: the greatest says who is a member. Copies of all
    members count, also of nodes whose streams lack something: the log of the repository
    is another one, and its votes say which copy is good.
    """
    if not records:
        return None
    authority = max(records, key=lambda record: record.number)
    members = authority.configuration.members
    return recover(
        [
            copy
            for record, copy in copies
            if record.cluster == authority.cluster and record.node in members
        ]
    )


def _known(copies: Sequence[Copy]) -> int:
    """Return the greatest index that a copy itself says is committed."""
    return max(
        max(copy.stored.base.index, copy.stored.hard_state.commit) for copy in copies
    )


def _agreed(best: Copy, copies: Sequence[Copy], membership: Membership) -> int:
    """Return the index up to which a majority has the log of the last term.

    An entry is committed when a majority has it and the term is the one it was made in.
    A later term that any of them has seen may have put something else there.
    """
    term, last = best.last
    if any(copy.stored.hard_state.term > term for copy in copies):
        # A leader of that term may have replaced what is counted here.
        return 0
    terms = {entry.index: entry.term for entry in best.entries}
    reached = {}
    for copy in copies:
        # Same index and term: the logs agree up to there.
        theirs = [e.index for e in copy.entries if terms.get(e.index) == e.term]
        reached[copy.node] = max(theirs, default=copy.stored.base.index)
    index = min(agreed(membership.halves, lambda node: reached.get(node, 0)), last)
    # An entry of an earlier term is not committed by being on a majority.
    return index if terms.get(index) == term else 0


def _names(entries: Iterable[Entry]) -> dict[str, int]:
    names = Counter(
        type(decode_call(entry.data).command).__name__
        for entry in entries
        if entry.kind is EntryKind.DATA
    )
    return dict(sorted(names.items()))


def _replay(base: Base, entries: Sequence[Entry]) -> State:
    repository = Repository(base.state)
    if not base.state:
        repository.state.index = base.index
    for entry in entries:
        if entry.kind is EntryKind.DATA:
            repository.apply(entry.index, entry.data)
        else:
            repository.skip(entry.index)
    return repository.state


def _settled(state: State) -> State:
    """Return what an earlier rescue carried over, if that one is not over."""
    known = state.faults
    if known is None or not known.awaited or not known.seed:
        return state
    # The cluster was lost again before its nodes had said what they hold: its own state
    # is still empty, and what the first rescue found counts.
    before = decode_state(known.seed)
    before.index = state.index
    return before


def seed_of(recovered: Recovered, configuration: Configuration) -> GroupStart:
    """Return what the valid nodes of this configuration begin with."""
    state = decode_state(encode_state(recovered.state))
    live = configuration.live
    state.faults = None
    state.nodes = {node: state.nodes[node] for node in live if node in state.nodes}
    return GroupStart(
        configuration.epoch,
        state.index + _RESCUED,
        tuple(node for node in recovered.voters if node in live),
        recovered.complete,
        encode_state(state),
    )


def base_of(
    configuration: Configuration, voters: tuple[int, ...], seed: GroupStart | None
) -> Base:
    """Return what a member begins with after a rescue: the same on all valid nodes."""
    repository = Repository()
    state = repository.state
    state.faults = first(configuration, configuration.live)
    # Behind an index, so that members that join later are sent this state.
    state.index = _RESCUED
    if seed is not None:
        before = decode_state(seed.state)
        state.index = state.revision = seed.index
        state.nodes, state.removed = before.nodes, before.removed
        state.faults.seed, state.faults.complete = seed.state, seed.complete
    membership = Membership(voters=voters)
    return Base(state.index, _RESCUED, membership, repository.snapshot())
