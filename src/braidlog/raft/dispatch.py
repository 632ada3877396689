"""Which message does what: validation, terms, then the handler of the kind.

Nothing that a peer sends changes anything before it was found well-formed. What
contradicts an invariant, such as two leaders in a term, stops this node alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from braidlog.raft import election, follower, leader, messages
from braidlog.raft.core import Core
from braidlog.raft.effects import Role
from braidlog.raft.errors import RaftMessageError
from braidlog.raft.log import memberships_of
from braidlog.raft.messages import Message
from braidlog.raft.reads import Request

__all__ = ["step", "validate"]

_FROM_LEADER: Final = (messages.Append, messages.Heartbeat, messages.InstallBase)


def validate(core: Core, message: Message) -> None:
    """Refuse a message that no correct node sends to this one.

    Raises:
        RaftMessageError: it is for another node, or contradicts itself.
    """
    if message.receiver != core.id:
        raise RaftMessageError(f"a message for {message.receiver}")
    if not 0 < message.sender != core.id:
        raise RaftMessageError(f"a message of {message.sender}")
    _require(message.term > 0, "a message without a term")
    if isinstance(message, messages.Append):
        _validate_append(message)
    elif isinstance(message, messages.InstallBase):
        base = message.base
        _require(base.index > 0 and base.term <= message.term, "an impossible base")
        _require(base.membership.epoch <= base.index, "a base older than its members")


def _validate_append(message: messages.Append) -> None:
    index, term = message.prev_index, message.prev_term
    if (index == 0) != (term == 0):
        raise RaftMessageError(f"entry {index} in term {term}")
    for entry in message.entries:
        if entry.index != index + 1:
            raise RaftMessageError(f"entry {entry.index} behind {index}")
        if not term <= entry.term <= message.term:
            raise RaftMessageError(f"term of entry {entry.index}")
        index, term = entry.index, entry.term
    memberships_of(message.entries)


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise RaftMessageError(reason)


def step(core: Core, message: Message) -> None:
    """Handle a valid message."""
    if core.role is Role.REMOVED:
        # Its votes and its log count for nothing any more, so no answer may.
        return
    if isinstance(message, messages.Removed):
        # No term is compared: a removal was committed, and no term takes it back.
        core.remove()
    elif _from_removed(core, message):
        # The removed node did not hear of it, and would campaign for ever.
        core.send(messages.Removed, message.sender)
    elif message.term < core.term:
        _refuse(core, message)
    elif _enter_term(core, message):
        _HANDLERS[type(message)](core, message)


def _from_removed(core: Core, message: Message) -> bool:
    """Tell whether the sender was removed; its last word as leader still counts."""
    last_word = isinstance(message, messages.TimeoutNow)
    return message.sender in core.tombstones and not last_word


def _refuse(core: Core, message: Message) -> None:
    """Answer an earlier term where that helps the sender on."""
    if isinstance(message, _FROM_LEADER):
        # An old leader that is back from a partition learns the term and steps down.
        follower.refuse_stale(core, message.sender)
    elif isinstance(message, messages.PreVoteRequest):
        # The answer has the term of this node, from which the candidate catches up.
        election.on_pre_vote_request(core, message)
    elif isinstance(message, messages.VoteRequest):
        # Refused in the same way, or it would wait for its whole timeout.
        election.on_vote_request(core, message)
    # Answers of an earlier term are about something that is over: they are dropped.


def _enter_term(core: Core, message: Message) -> bool:
    """Follow a later term; tell whether the message is to be handled at all."""
    if message.term == core.term or isinstance(message, messages.PreVoteRequest):
        # A pre-vote names the term of an election that may never be held.
        return True
    if isinstance(message, messages.PreVoteResponse) and message.granted:
        # It repeats the term that was asked about. Only a refusal has a real one.
        return True
    asks = isinstance(message, messages.VoteRequest) and not message.transfer
    if asks and core.leased:
        # The leader was heard within a timeout: whoever does not hear it is cut off
        # or removed, and its term must not depose the leader (Ongaro, 4.2.3).
        return False
    # Only a leader sends these in its term; all others leave open who leads.
    known = message.sender if isinstance(message, _FROM_LEADER) else 0
    core.follow(message.term, known)
    return True


def _on_read_request(core: Core, request: messages.ReadRequest) -> None:
    read = Request(request.sender, request.incarnation, request.number)
    if core.role is Role.LEADER and len(core.reads) < core.config.reads_max:
        leader.read(core, read)
    else:
        # Said at once: the follower asks the next leader without waiting.
        core.refuse_read(read)


def _on_read_response(core: Core, response: messages.ReadResponse) -> None:
    if response.incarnation != core.config.incarnation:
        # Numbers begin anew with each start: this one answers another read.
        return
    context = core.reads.answered(response.number)
    if context is None:
        # It has failed already, by its deadline or with the former leader.
        return
    if response.index:
        core.answer(response.index, Request(core.id, 0, context))
    else:
        core.fail_read(context)


def _on_timeout_now(core: Core, message: messages.TimeoutNow) -> None:
    election.on_timeout_now(core, message.sender)


def _on_append_response(core: Core, response: messages.AppendResponse) -> None:
    if core.role is Role.LEADER:
        leader.on_append_response(core, response)


def _on_heartbeat_response(core: Core, response: messages.HeartbeatResponse) -> None:
    if core.role is Role.LEADER:
        leader.on_heartbeat_response(core, response)


_HANDLERS: Final[dict[type[Message], Callable[[Core, Any], None]]] = {
    messages.PreVoteRequest: election.on_pre_vote_request,
    messages.PreVoteResponse: election.on_pre_vote_response,
    messages.VoteRequest: election.on_vote_request,
    messages.VoteResponse: election.on_vote_response,
    messages.Append: follower.on_append,
    messages.AppendResponse: _on_append_response,
    messages.Heartbeat: follower.on_heartbeat,
    messages.HeartbeatResponse: _on_heartbeat_response,
    messages.InstallBase: follower.on_install,
    messages.ReadRequest: _on_read_request,
    messages.ReadResponse: _on_read_response,
    messages.TimeoutNow: _on_timeout_now,
}
