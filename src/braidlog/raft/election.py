"""Elections: pre-vote, votes, stickiness (Raft, 5.2 and 5.4.1; Ongaro, 4.2.3 and 9.6).

A node that hears no leader first asks whether it could win, without touching any term.
A node that heard its leader within the election timeout answers neither kind of
request, unless the leader itself asked for the election. So a node that was cut off, is
behind, or was removed disturbs nobody.
"""

from __future__ import annotations

from braidlog.raft import leader
from braidlog.raft.core import Core
from braidlog.raft.effects import Role
from braidlog.raft.messages import (
    PreVoteRequest,
    PreVoteResponse,
    VoteRequest,
    VoteResponse,
)
from braidlog.raft.quorum import Vote, tally

__all__ = [
    "campaign",
    "on_pre_vote_request",
    "on_pre_vote_response",
    "on_timeout_now",
    "on_vote_request",
    "on_vote_response",
    "pre_campaign",
    "tick",
]


def tick(core: Core) -> None:
    """Count a tick without being the leader."""
    for context in core.reads.tick(core.config.election_ticks):
        core.fail_read(context)
    core.elapsed += 1
    if core.elapsed < core.timeout:
        return
    if core.can_stand:
        # The pre-vote restarts the timer, so an election that fails is tried again.
        pre_campaign(core)
    elif core.leader:
        # Does not restart the timer: who asks for a vote now gets it.
        core.leader = 0
        core.fail_reads()


def pre_campaign(core: Core) -> None:
    """Ask whether an election could be won."""
    core.enter(Role.PRE_CANDIDATE, 0)
    core.votes[core.id] = True
    for node in _others(core):
        core.send(
            PreVoteRequest,
            node,
            term=core.term + 1,
            last_index=core.log.last,
            last_term=core.log.last_term,
        )
    if tally(core.membership.halves, core.votes) is Vote.WON:
        # The only voter has nobody to ask.
        campaign(core, transfer=False)


def campaign(core: Core, *, transfer: bool) -> None:
    """Begin a term and ask for votes.

    The requests and the own vote wait until term, vote and log are durable: the own
    vote counts like any other, and what is asked for can not be forgotten.
    """
    core.term += 1
    core.vote = core.id
    core.enter(Role.CANDIDATE, 0)
    # It comes back when the vote is durable: after a crash it would vote once more.
    core.promise(VoteResponse, core.id, granted=True)
    for node in _others(core):
        core.promise(
            VoteRequest,
            node,
            last_index=core.log.last,
            last_term=core.log.last_term,
            transfer=transfer,
        )


def on_pre_vote_request(core: Core, request: PreVoteRequest) -> None:
    """Say whether this node would vote so."""
    if core.leased:
        # The leader is there, and the asker hears of it by itself.
        return
    granted = request.term > core.term and core.log.up_to_date(
        request.last_index, request.last_term
    )
    # A refusal tells the later term, so that a node that was cut off catches up.
    term = request.term if granted else core.term
    core.send(PreVoteResponse, request.sender, term=term, granted=granted)


def on_vote_request(core: Core, request: VoteRequest) -> None:
    """Vote, once in a term, for a node whose log is at least as new."""
    granted = (
        request.term == core.term
        # A repeated request gets the same answer.
        and core.vote in (0, request.sender)
        # A leader of this term is known, so this election is over.
        and core.leader in (0, request.sender)
        # Every committed entry is in the log of a leader (Raft, 5.4.1).
        and core.log.up_to_date(request.last_index, request.last_term)
    )
    if granted:
        core.vote = request.sender
        # The candidate gets its time: to stand against it would split the vote.
        core.elapsed = 0
    core.promise(VoteResponse, request.sender, granted=granted)


def on_pre_vote_response(core: Core, response: PreVoteResponse) -> None:
    """Count an answer; stand for election when a quorum would vote so."""
    asked = core.term + 1 if response.granted else core.term
    if core.role is Role.PRE_CANDIDATE and response.term == asked:
        core.votes[response.sender] = response.granted
        outcome = tally(core.membership.halves, core.votes)
        if outcome is Vote.WON:
            campaign(core, transfer=False)
        elif outcome is Vote.LOST:
            # Others hear a leader, or have more: wait to be told of it.
            core.follow(core.term, 0)


def on_vote_response(core: Core, response: VoteResponse) -> None:
    """Count a vote; lead when a quorum voted for this node."""
    if core.role is not Role.CANDIDATE or response.term != core.term:
        return  # Of an election that was won, lost or given up.
    # The first answer counts: a vote is never taken back.
    core.votes.setdefault(response.sender, response.granted)
    outcome = tally(core.membership.halves, core.votes)
    if outcome is Vote.WON:
        core.elected_by = tuple(sorted(n for n, yes in core.votes.items() if yes))
        leader.lead(core)
    elif outcome is Vote.LOST:
        core.follow(core.term, 0)


def on_timeout_now(core: Core, sender: int) -> None:
    """Stand for election at once, because the leader asks for it."""
    if sender == core.leader and core.role is Role.FOLLOWER and core.can_stand:
        # Without a pre-vote: all others still hear the leader and would not answer it.
        campaign(core, transfer=True)


def _others(core: Core) -> list[int]:
    return sorted(core.membership.electors - {core.id})
