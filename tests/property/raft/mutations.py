"""Bugs to plant: each breaks one rule that the core keeps.

A mutation takes a monkeypatch and changes the code as a mistake would. The simulation
or a script has to notice every one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from msgspec.structs import replace

from braidlog.raft import (
    Frame,
    changes,
    dispatch,
    election,
    leader,
    messages,
    replication,
)
from braidlog.raft.core import Core
from braidlog.raft.effects import Role, Write
from braidlog.raft.log import RaftLog
from braidlog.raft.membership import Membership
from braidlog.raft.messages import (
    AppendResponse,
    Message,
    VoteRequest,
    VoteResponse,
)
from braidlog.raft.quorum import agreed
from braidlog.raft.reads import Reads, Request

Mutation = Callable[[pytest.MonkeyPatch], None]


def _sent_early(kind: type[Message]) -> Mutation:
    """Send a promise without waiting for the disk."""

    def mutate(patch: pytest.MonkeyPatch) -> None:
        hold = Core.hold

        def early(core: Core, message: Message | Frame) -> None:
            # Of what is encoded already only answers to appends are promises.
            made = AppendResponse if isinstance(message, Frame) else type(message)
            if made is kind and message.receiver != core.id:
                core.messages.append(message)
            else:
                hold(core, message)

        patch.setattr(Core, "hold", early)

    return mutate


def own_vote_early(patch: pytest.MonkeyPatch) -> None:
    campaign = election.campaign

    def counts_at_once(core: Core, *, transfer: bool) -> None:
        campaign(core, transfer=transfer)
        vote = core.message(VoteResponse, core.id, granted=True)
        assert isinstance(vote, VoteResponse)
        election.on_vote_response(core, vote)

    patch.setattr(election, "campaign", counts_at_once)


def old_term_committed(patch: pytest.MonkeyPatch) -> None:
    def advance(core: Core) -> None:
        while core.role is Role.LEADER:
            index = agreed(core.membership.halves, leader._durable(core).__getitem__)
            if index <= core.log.commit:
                return
            core.commit_to(index)
            core.reads.committed(index)
            changes.settle(core)

    patch.setattr(leader, "_advance_commit", advance)


def own_append_early(patch: pytest.MonkeyPatch) -> None:
    durable = leader._durable

    def counts_at_once(core: Core) -> dict[int, int]:
        return durable(core) | {core.id: core.log.last}

    patch.setattr(leader, "_durable", counts_at_once)


def read_without_round(patch: pytest.MonkeyPatch) -> None:
    def confirmed(reads: Reads, halves: object, own: int) -> list[tuple[int, Request]]:
        done = [(index, request) for _, index, request in reads._asked]
        reads._asked.clear()
        return done

    patch.setattr(Reads, "confirmed", confirmed)


def any_round_confirms(patch: pytest.MonkeyPatch) -> None:
    def acknowledge(reads: Reads, node: int, number: int) -> None:
        reads._acked[node] = reads.round

    patch.setattr(Reads, "acknowledge", acknowledge)


def read_before_first_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replication, "confirmed", lambda core: True)


def read_without_incarnation(patch: pytest.MonkeyPatch) -> None:
    def on_read_response(core: Core, response: messages.ReadResponse) -> None:
        context = core.reads.answered(response.number)
        if context is not None and response.index:
            core.answer(response.index, Request(core.id, 0, context))
        elif context is not None:
            core.fail_read(context)

    kind: type[messages.Message] = messages.ReadResponse
    patch.setitem(dispatch._HANDLERS, kind, on_read_response)


def joint_half_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Membership, "halves", property(lambda self: (self.voters, ())))


def change_while_one_is_pending(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(changes, "_require_calm", lambda core: None)
    patch.setattr(changes, "_require_live", lambda core, membership: None)


def any_log_gets_votes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLog, "up_to_date", lambda self, index, term: True)


def votes_twice(patch: pytest.MonkeyPatch) -> None:
    def on_vote_request(core: Core, request: VoteRequest) -> None:
        granted = core.log.up_to_date(request.last_index, request.last_term)
        core.vote = request.sender if granted else core.vote
        core.promise(VoteResponse, request.sender, granted=granted)

    kind: type[messages.Message] = VoteRequest
    patch.setitem(dispatch._HANDLERS, kind, on_vote_request)


def vote_not_stored(patch: pytest.MonkeyPatch) -> None:
    store = Core.store

    def forgets(core: Core, taken: Any, *, vital: bool) -> Write:
        write = store(core, taken, vital=vital)
        if write.hard_state is None:
            return write
        return replace(write, hard_state=replace(write.hard_state, vote=0))

    patch.setattr(Core, "store", forgets)


def matching_entries_cut(patch: pytest.MonkeyPatch) -> None:
    def splice(log: RaftLog, entries: Any) -> int | None:
        if not entries:
            return None
        if entries[0].index <= log.last:
            log.cut(entries[0].index)
        log.append(entries)
        return int(entries[0].index)

    patch.setattr(RaftLog, "splice", splice)


def committed_entries_cut(patch: pytest.MonkeyPatch) -> None:
    matching_entries_cut(patch)
    cut = RaftLog.cut

    def unchecked(log: RaftLog, begin: int) -> None:
        commit, log.commit = log.commit, 0
        cut(log, begin)
        log.commit = min(commit, begin - 1)

    patch.setattr(RaftLog, "cut", unchecked)


def conflict_kept(patch: pytest.MonkeyPatch) -> None:
    def splice(log: RaftLog, entries: Any) -> int | None:
        new = [entry for entry in entries if entry.index > log.last]
        log.append(new)
        return new[0].index if new else None

    patch.setattr(RaftLog, "splice", splice)


def applied_before_durable(patch: pytest.MonkeyPatch) -> None:
    take = RaftLog.take_committed

    def early(log: RaftLog, bytes_max: int) -> Any:
        durable, log.durable = log.durable, log.last
        entries = take(log, bytes_max)
        log.durable = durable
        return entries

    patch.setattr(RaftLog, "take_committed", early)
    patch.setattr(RaftLog, "check", lambda log: None)


def late_report_believed(patch: pytest.MonkeyPatch) -> None:
    """Reports of writes count as if nothing of them had been replaced."""
    take, stored = RaftLog.take_write, RaftLog.stored
    ends: WeakKeyDictionary[RaftLog, dict[int, int]] = WeakKeyDictionary()

    def noted(log: RaftLog, vital: bool) -> Any:
        taken = take(log, vital)
        if taken is not None:
            ends.setdefault(log, {})[taken[0]] = log.last
        return taken

    def believed(log: RaftLog, number: int) -> None:
        stored(log, number)
        end = ends[log][number]
        log.durable = max(log.durable, end)

    patch.setattr(RaftLog, "take_write", noted)
    patch.setattr(RaftLog, "stored", believed)


def heartbeat_commits_all(patch: pytest.MonkeyPatch) -> None:
    def heartbeat(core: Core) -> None:
        core.heartbeat_elapsed = 0
        for node in core.progress:
            core.send(
                messages.Heartbeat,
                node,
                commit=core.log.commit,
                round=core.reads.round,
            )

    patch.setattr(leader, "_heartbeat", heartbeat)


def removed_leader_never_stands(patch: pytest.MonkeyPatch) -> None:
    def can_stand(core: Core) -> bool:
        return core.id in core.membership.electors and not core.log.install_pending

    patch.setattr(Core, "can_stand", property(can_stand))


def lost_window_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLog, "answered", RaftLog.heard)


def no_pre_vote(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        election, "pre_campaign", lambda core: election.campaign(core, transfer=False)
    )


def no_stickiness(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Core, "leased", property(lambda self: False))


def no_check_quorum(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leader, "_quorum_active", lambda core: True)


def tombstones_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Core, "tombstones", property(lambda self: ()))


def tail_not_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLog, "tail_bytes", lambda log: 0)


@dataclass(frozen=True)
class Planted:
    """A bug, the script that shows it, the storm in which the simulation finds it."""

    name: str
    mutate: Mutation
    script: str = ""
    storm: str = ""


PLANTED = [
    Planted("own vote counts early", own_vote_early, "election", "everything"),
    Planted("votes leave early", _sent_early(VoteResponse), "async_writes"),
    Planted(
        "votes are asked for early",
        _sent_early(VoteRequest),
        "async_writes",
        "elections",
    ),
    Planted(
        "appends are answered early",
        _sent_early(AppendResponse),
        "async_writes",
        "everything",
    ),
    Planted("own entries count early", own_append_early, "election", "elections"),
    Planted(
        "applied before durable", applied_before_durable, "async_writes", "everything"
    ),
    Planted("an earlier term is committed", old_term_committed, "figure8"),
    Planted("no round for reads", read_without_round, "readindex", "stale leaders"),
    Planted("any round confirms", any_round_confirms, "readindex", "stale leaders"),
    Planted("reads too early", read_before_first_commit, "readindex", "everything"),
    Planted("no incarnation", read_without_incarnation, "readindex"),
    Planted("one half decides", joint_half_ignored, "joint"),
    Planted("two changes", change_while_one_is_pending, "joint", "members"),
    Planted("no stand while removed", removed_leader_never_stands, "removal"),
    Planted("tombstones are ignored", tombstones_ignored, "removal"),
    Planted("any log gets votes", any_log_gets_votes, "election", "everything"),
    Planted("two votes in a term", votes_twice, "election", "everything"),
    Planted("the vote is not stored", vote_not_stored, "restart", "everything"),
    Planted("what matches is cut", matching_entries_cut, "log_conflict", "everything"),
    Planted(
        "what is committed is cut", committed_entries_cut, "log_conflict", "everything"
    ),
    Planted("a conflict is kept", conflict_kept, "log_conflict", "everything"),
    Planted("a late report is believed", late_report_believed, "", "elections"),
    Planted(
        "heartbeats commit too much", heartbeat_commits_all, "replication", "everything"
    ),
    Planted("a lost window", lost_window_not_noticed, "windows", "everything"),
    Planted("no pre-vote", no_pre_vote, "prevote"),
    Planted("no stickiness", no_stickiness, "stickiness"),
    Planted("no check of the quorum", no_check_quorum, "check_quorum"),
    Planted("the tail has no bound", tail_not_counted, "windows"),
]
