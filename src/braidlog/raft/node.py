"""One node of a Raft group, without input and output.

*Theory of operation.* Inputs are calls; each changes the state at once. `effects` then
returns everything there is to do, gathered over all inputs since the last call: one
numbered write, messages, committed entries, answered reads. The shell does it and
reports `durable` and `applied`. Time is `tick`; randomness comes with the settings. The
same start and the same inputs give the same effects.

    node = RaftNode(config, stored)
    node.take(data); node.tick(); span = node.propose([b"x"])
    effects = node.effects()         # write, send, apply, answer
    node.durable(effects.write.number); node.applied(effects.committed[-1].index)

Entries are acknowledged by `committed`: they are durable on a quorum and here. Whether
a proposal was lost with its leader is told by the term of the entry at its index.

After a `RaftInvariantError` the node takes no further input. All other errors leave it
as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from msgspec import Struct

from braidlog.errors import InvalidArgumentError, LogError
from braidlog.raft import (
    changes,
    codec,
    dispatch,
    election,
    follower,
    leader,
    replication,
)
from braidlog.raft.config import RaftConfig
from braidlog.raft.core import Core
from braidlog.raft.effects import NOTHING, Effects, Role
from braidlog.raft.errors import (
    NotLeaderError,
    RaftInvariantError,
    ReadsFullError,
    RemovedNodeError,
    TailFullError,
    TransferringError,
    fail,
)
from braidlog.raft.log import LogReader
from braidlog.raft.membership import Change
from braidlog.raft.messages import Message, ReadRequest
from braidlog.raft.reads import Request
from braidlog.raft.state import EntryKind, Stored

__all__ = ["RaftNode", "Span"]


class Span(Struct, frozen=True):
    """Where proposals were logged: `begin <= index < end`, all of one term."""

    term: int
    begin: int
    end: int


class _Input:
    """One input of a node; those that follow from each append do without it."""

    __slots__ = ("_node",)

    def __init__(self, node: RaftNode) -> None:
        self._node = node

    def __enter__(self) -> Core:
        """Begin an input."""
        node = self._node
        if node._failed:
            node._refuse()
        node.stirred = node.core.uncounted = True
        node.core.unsettle()
        return node.core

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: object,
    ) -> None:
        if error is not None:
            self._node._broke(error)


class RaftNode:
    """One node of a group; see the module."""

    def __init__(
        self,
        config: RaftConfig,
        stored: Stored,
        *,
        applied: int | None = None,
        reader: LogReader | None = None,
    ) -> None:
        """Start from what the disk holds.

        `applied` is the index that the state machine contains, if that is more than
        the base. With a `reader` the log keeps only a part of its entries in memory.

        Raises:
            RaftInvariantError: what is stored contradicts itself.
            RaftMessageError: a stored membership is malformed.
        """
        self._failed: str = ""
        self._inputs = _Input(self)
        self.stirred = True
        """Whether effects may follow from what came in since they were asked for."""
        self.core = Core(
            config,
            stored,
            applied=stored.base.index if applied is None else applied,
            reader=reader,
        )
        """The state, to look at."""

    def _refuse(self) -> NoReturn:
        raise RaftInvariantError(f"the node has stopped: {self._failed}")

    def _broke(self, error: BaseException) -> None:
        """End an input that raised; an invariant or the unforeseen stops the node."""
        if isinstance(error, RaftInvariantError):
            # Whoever asks for effects next is told.
            self._failed, self.stirred = error.message, True
        elif isinstance(error, Exception) and not isinstance(error, LogError):
            self._failed, self.stirred = repr(error), True
            raise RaftInvariantError(self._failed) from error

    def stir(self) -> None:
        """Look at everything: a lane took what came, and more follows from it."""
        self.stirred = self.core.uncounted = True

    # --- time, messages, reports of the shell

    def tick(self, count: int = 1) -> None:
        """Let time pass."""
        with self._inputs as core:
            for _ in range(count):
                if core.role is Role.LEADER:
                    leader.tick(core)
                elif core.role is not Role.REMOVED:
                    election.tick(core)

    def step(self, message: Message) -> None:
        """Take a message of a peer.

        Raises:
            RaftMessageError: it is for somebody else, or cannot be.
        """
        stirred = self.stirred
        with self._inputs as core:
            dispatch.validate(core, message)
            dispatch.step(core, message)
            if core.role is Role.LEADER and not stirred:
                self.stirred = not leader.rests(core)

    def take(self, data: bytes) -> None:
        """Take the bytes of a message of a peer.

        Raises:
            RaftMessageError: it is malformed, for somebody else, or cannot be.
        """
        if self._failed:
            self._refuse()
        core, stirred, self.stirred = self.core, self.stirred, True
        try:
            if core.role is Role.FOLLOWER:
                taken = follower.take_append(core, data)
            elif core.role is Role.LEADER and core.transfer is None:
                # While it hands over, the target may have everything with an answer.
                epoch = core.log.membership.epoch
                taken = core.log.take_answer(data, core.term, epoch)
                if taken:
                    core.uncounted = True
                    self.stirred = stirred or not leader.rests(core)
            else:
                taken = False
        except Exception as error:
            self._broke(error)
            raise
        if not taken:
            # Most messages that come are taken above; nothing was changed by asking.
            self.stirred = stirred
            self.step(codec.decode_message(data))

    def durable(self, number: int) -> None:
        """Note that all writes up to `number` are on the disk."""
        if self._failed:
            self._refuse()
        core, stirred, self.stirred = self.core, self.stirred, True
        core.uncounted = True
        try:
            core.log.stored(number)
            if kept := core.log.release():
                for vote in core.release(kept):
                    dispatch.step(core, vote)
            elif not stirred and core.role is Role.LEADER:
                self.stirred = not leader.rests(core)
        except Exception as error:
            self._broke(error)
            raise

    def applied(self, index: int) -> None:
        """Note that the state machine has applied what was handed out up to `index`."""
        if self._failed:
            self._refuse()
        log = self.core.log
        try:
            log.applied_to(index)
        except Exception as error:
            self._broke(error)
            raise
        # Nothing follows from it but room for more of the same.
        self.stirred = self.stirred or log.has_committed

    def unreachable(self, peer: int) -> None:
        """Note that messages to a peer are being lost.

        A follower is probed again, and a leader is soon taken for gone: a process that
        ends closes its connections at once.
        """
        with self._inputs as core:
            if core.role is Role.FOLLOWER and peer == core.leader:
                core.suspect()
            core.log.lost(peer)

    def forget(self, peer: int) -> None:
        """Forget how far a learner was: it comes back with an empty log.

        Raises:
            InvalidArgumentError: the peer votes, so entries may be committed because it
                has them.
        """
        with self._inputs as core:
            if peer in core.membership.electors:
                msg = f"node {peer} is a voter, so its log cannot be forgotten"
                raise InvalidArgumentError(msg)
            if core.log.forget(peer):
                replication.track(core)

    # --- requests

    def propose(self, payloads: Sequence[bytes]) -> Span:
        """Log data, if this node leads.

        Raises:
            NotLeaderError: another node leads, or none.
            TransferringError: leadership is being handed over.
            TailFullError: too much is uncommitted.
        """
        if self._failed:
            self._refuse()
        core, self.stirred = self.core, True
        if core.role is not Role.LEADER:
            _require_leader(core)
        if core.transfer:
            msg = f"leadership is being handed over to node {core.transfer.target}"
            raise TransferringError(msg, target=core.transfer.target)
        size, limit = sum(map(len, payloads)), core.config.tail_bytes_max
        used = core.log.tail_bytes() if size else 0
        if used and used + size > limit:
            msg = f"{used} bytes wait to be committed, and {size} more do not fit"
            raise TailFullError(msg, used=used, limit=limit)
        begin = core.log.last + 1
        try:
            replication.append(core, EntryKind.DATA, payloads)
        except Exception as error:
            self._broke(error)
            raise
        return Span(core.term, begin, core.log.last + 1)

    def read(self, context: int) -> None:
        """Ask from which index on a local read is linearizable.

        The answer is a `ReadState` or `ReadFailed` with the context, on any node.

        Raises:
            NotLeaderError: no leader is known.
            ReadsFullError: too many reads wait.
        """
        with self._inputs as core:
            _require_member(core)
            if len(core.reads) >= core.config.reads_max:
                msg = f"{len(core.reads)} reads wait already"
                raise ReadsFullError(msg)
            if core.role is Role.LEADER:
                leader.read(core, Request(core.id, 0, context))
            elif core.leader:
                core.send(
                    ReadRequest,
                    core.leader,
                    incarnation=core.config.incarnation,
                    number=core.reads.forward(context),
                )
            else:
                msg = f"no leader is known in term {core.term}"
                raise NotLeaderError(msg, term=core.term)

    def change_membership(self, change: Change, *, force: bool = False) -> int:
        """Log a change of membership; return its epoch.

        It is in force at once, and final when the entry at that index is committed;
        a change through a joint membership needs one more entry.

        Raises:
            NotLeaderError: another node leads, or none.
            ChangeRefusedError: another change is in progress, or too few of the new
                voters follow; `force` skips the second test.
            MembershipError: the change makes no sense.
        """
        with self._inputs as core:
            _require_leader(core)
            return changes.change_membership(core, change, force=force)

    def leave_joint(self) -> int:
        """Log the end of a joint membership; return its epoch.

        Raises:
            NotLeaderError: another node leads, or none.
            ChangeRefusedError: the joint membership is not committed.
            MembershipError: the membership is not joint.
        """
        with self._inputs as core:
            _require_leader(core)
            return changes.leave_joint(core)

    def transfer(self, target: int) -> None:
        """Hand leadership over; proposals are refused until it is done or given up.

        To this node itself: give a transfer up.

        Raises:
            NotLeaderError: another node leads, or none.
            InvalidArgumentError: the target is no voter.
        """
        with self._inputs as core:
            _require_leader(core)
            if target not in core.membership.voters:
                msg = f"node {target} is not a voter"
                raise InvalidArgumentError(msg)
            replication.transfer(core, target)

    def tell_commit(self) -> None:
        """Tell followers at once what is committed, if this node leads."""
        with self._inputs as core:
            core.telling = True

    def truncate(self, index: int, state: bytes) -> None:
        """Let the log begin behind `index`; `state` is the state machine there.

        The entries may be dropped once the write with the new base is durable. A lower
        index than the base's changes nothing.

        Raises:
            InvalidArgumentError: the index is not applied here yet.
        """
        with self._inputs as core:
            if index > core.log.applied or core.log.install_pending:
                msg = f"{index} is not applied, {core.log.applied} is"
                raise InvalidArgumentError(msg)
            if index > core.log.base.index:
                core.log.fold(index, state)
                core.log.base_changed(reset=False)

    # --- outputs

    def effects(self) -> Effects:
        """Return what has to be done since the last call; false if nothing has."""
        if self._failed:
            self._refuse()
        if not self.stirred:
            return NOTHING
        core = self.core
        try:
            if core.role is Role.LEADER:
                leader.flush(core)
            effects = core.take()
            # After every input, so kept cheap: the node stops if its state cannot be.
            core.log.check()
            leads = core.role is Role.LEADER
            if leads and core.vote != core.id:
                fail("leads without a vote")
            if not leads and core.log.peers:
                fail("follows and replicates")
            if leads:
                if not core.log.settled or effects.write is not None:
                    leader.settle(core)
            elif core.role is Role.FOLLOWER:
                follower.settle(core)
        except Exception as error:
            self._broke(error)
            raise
        # What is applied next has a bound, so there may be more of it. All the rest was
        # taken, and only another input makes new.
        self.stirred = core.log.has_committed
        return effects


def _require_member(core: Core) -> None:
    if core.role is Role.REMOVED:
        msg = f"node {core.id} was removed from the group"
        raise RemovedNodeError(msg)


def _require_leader(core: Core) -> None:
    _require_member(core)
    if core.role is not Role.LEADER:
        msg = f"node {core.id} is a {core.role.value} in term {core.term}"
        raise NotLeaderError(msg, leader=core.leader, term=core.term)
