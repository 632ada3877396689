"""Three members of the metadata repository with their logs, and a wire in memory."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from braidlog import _native
from braidlog.errors import UnavailableError
from braidlog.metarepo.pending import Answer
from braidlog.node.config import parse
from braidlog.node.repository.member import RepositoryMember
from braidlog.node.repository.raft_log import GroupLog
from braidlog.raft import Write
from braidlog.wire import commands
from braidlog.wire.messages import Message
from unit.node.repository.test_group_log import FIRST, opened

NODE = (
    '[node]\nid = {}\ndata = "/n"\n[cluster.voters]\n1 = "n1:1"\n2 = "n2:1"\n3 = "n3:1"'
)


class Members:
    """Members, and the links between them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.answers: list[Answer] = []
        self._stores = {node: opened(_native.MemoryDisk(node)) for node in (1, 2, 3)}
        self.all = {node: self._member(node) for node in self._stores}

    def _member(self, node: int) -> RepositoryMember:
        peers: Any = Links(self)
        return RepositoryMember(
            parse(NODE.format(node), {}),
            GroupLog.create(self._stores[node], 1, FIRST),
            peers,
            incarnation=1,
            chance=Random(node),
            now=0.0,
            wall=lambda: 0,
            to_self=lambda message: None,
        )

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            for node, member in self.all.items():
                member.group.tick(self.now)
                member.flush()
                self._stores[node].sync()
                member.synced(self._stores[node].durable())
                member.flush()

    @property
    def leader(self) -> int:
        leading = [node for node, member in self.all.items() if member.leads]
        return leading[0] if len(leading) == 1 else 0

    def register(self) -> None:
        command = commands.encode(commands.RegisterNode(1, "host:1", 1))
        self.all[self.leader].execute(b"", command, self.answers.append)


class Links:
    """What a member uses of `Peers`."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def send(self, node: int, message: Message, payload: Sequence[bytes]) -> None:
        self._members.all[node].group.step(b"".join(payload), 0, self._members.now)

    def flush(self) -> None:
        """Everything was sent at once."""

    def know(self, addresses: dict[int, str]) -> None:
        """Everybody is known."""

    def is_connected(self, node: int) -> bool:
        return True


def test_a_leader_without_room_hands_over_and_goes_on_when_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It applies only what it has stored, so under its lead nothing would happen."""
    members = Members()
    members.run(3)
    full = members.leader
    assert full
    log: Any = members.all[full].writes._log

    def refuse(write: Write) -> int:
        raise UnavailableError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(log, "write", refuse)
        members.register()
        members.run(1)
        assert members.all[full].lacks_room
        assert members.leader not in (0, full)
        # Whoever asked does not know; whoever asks now is answered.
        assert members.answers.pop().error is not None
        members.register()
        members.run(0.5)
        assert members.answers.pop().error is None
    members.run(1)
    assert not members.all[full].lacks_room
    applied = {each.group.repository.index for each in members.all.values()}
    assert len(applied) == 1
