"""The membership of the group goes where it is wanted, step by step."""

from __future__ import annotations

import pytest

from braidlog.errors import InvalidArgumentError
from braidlog.metarepo.leader.voters import next_change
from braidlog.wire.commands import RegisterNode, SetVoter
from unit.metarepo.test_group import Lone


def test_a_lost_directory_loses_its_vote_whatever_is_wanted() -> None:
    lone = Lone().prepared()
    lone.result(RegisterNode(2, "host:2", 1, b"a" * 16))
    lone.result(SetVoter(2))
    state = lone.group.repository.state
    core = lone.group.raft.core
    assert core.membership.learners == (2,)
    state.nodes[2].readmitting = True
    core.log.accepted(2, core.log.last)
    assert next_change(state, core) is None
    state.nodes[2].readmitting = False
    assert next_change(state, core) is not None


def test_the_log_of_a_voter_cannot_be_forgotten() -> None:
    lone = Lone().prepared()
    lone.result(RegisterNode(2, "host:2", 1, b"a" * 16))
    lone.result(SetVoter(2))
    core = lone.group.raft.core
    core.log.accepted(2, 1)
    assert core.progress[2].match == 1
    lone.group.raft.forget(2)
    assert core.progress[2].match == 0
    with pytest.raises(InvalidArgumentError, match="is a voter"):
        lone.group.raft.forget(1)
