"""A node's member of the repository with its lane, and what it says to the others."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from braidlog import _native
from braidlog._native import Conn, Lane
from braidlog.node.config import parse
from braidlog.node.repository.member import RepositoryMember
from braidlog.node.repository.raft_log import GroupLog
from braidlog.raft import Base, Entry, EntryKind, Membership
from braidlog.raft import codec as raft_codec
from braidlog.raft.messages import (
    Append,
    Heartbeat,
)
from braidlog.store.node_store import NodeStore
from braidlog.wire import codec, commands
from braidlog.wire.messages import (
    Commit,
    Configure,
    Consensus,
    Message,
    Report,
)
from unit.wire.frames import conn, encode_frame

NODE, OTHERS = 1, (2, 3)
PLACES = ((1, 2), (2, 3), (3, 1, 2))
STREAMS = (1, 2, 3)
SETTINGS = """
[node]
id = 1
data = "/n"
[cluster]
name = "test"
[cluster.voters]
1 = "n1:7400"
2 = "n2:7400"
3 = "n3:7400"
"""


@dataclass(eq=False)
class Member:
    """Node 1 with its member of the repository, and all that it says to the others."""

    laned: bool
    sent: dict[int, list[tuple[Message, bytes]]] = field(default_factory=dict)
    own: list[Message] = field(default_factory=list)
    cuts: dict[int, dict[int, object]] = field(default_factory=dict)
    now: float = 0.0
    taken: int = 0

    def __post_init__(self) -> None:
        self.store = NodeStore("/n", entropy=1, disk=_native.MemoryDisk())
        peers: Any = self
        log = GroupLog.create(
            self.store, 1, Base(membership=Membership((NODE, *OTHERS)))
        )
        self.member = RepositoryMember(
            parse(SETTINGS, {}),
            log,
            peers,
            incarnation=1,
            chance=random.Random(1),
            now=0.0,
            wall=lambda: 0,
            to_self=self.own.append,
        )
        self.log = log
        self.lane = Lane(self.store.native, lambda: self.now)
        self.lane.identify(NODE, 1, 0)
        self.lane.join(codec.encode(Consensus(1)), self.member.group.raft.core.log)
        self.conn = conn()
        self.conn.hot = True
        self.links: dict[int, Conn] = {}
        for node in OTHERS:
            link = Conn(
                server=False,
                window=0,
                incoming_bytes_max=1 << 20,
                frame_bytes_max=1 << 20,
            )
            link.writable = True
            self.links[node] = link
            self.sent[node] = []
            if self.laned:
                wire = SimpleNamespace(unsent_bytes=lambda: 0)
                self.lane.link(node, link, wire, 1 << 20)
        if self.laned:
            self.conn.lane = self.lane

    # as the links

    def send(self, node: int, message: Message, payload: Any = ()) -> bool:
        self._take_sent()
        self.sent[node].append((message, b"".join(payload)))
        return True

    def has_room(self, _: int) -> bool:
        return True

    def flush(self) -> None:
        """Write nothing: what was sent is looked at."""

    def know(self, _: object) -> None:
        """Connect to nobody."""

    def is_connected(self, _: int) -> bool:
        return True

    def _take_sent(self) -> None:
        """Take what the lane has queued, in the order of what Python sent."""
        for node, link in self.links.items():
            data = b"".join(bytes(each) for each in link.take())
            reader = conn()
            at = 0
            while at < len(data):
                *_, cold, at, _ = reader.feed(data, at)
                assert cold is not None
                kind, _, head, payload = cold
                message = codec.decode(kind, head, memoryview(payload))
                self.sent[node].append((message, payload))

    # inputs

    def hear(self, node: int, message: Message, payload: bytes = b"") -> None:
        frame = encode_frame(message.KIND, 0, codec.encode(message), [payload])
        *_, cold, end, (taken, *_) = self.conn.feed(frame, 0)
        assert end == len(frame)
        self.taken += taken
        if cold is None:
            return
        kind, _, head, data = cold
        heard = codec.decode(kind, head, memoryview(data))
        if isinstance(heard, Report):
            self.member.report(heard, self.now)
        else:
            self.member.group.step(data, node, self.now)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.member.group.heard(*self.lane.take_heard(), self.now)
        self.member.group.tick(self.now)

    def execute(self, command: commands.Command, name: bytes) -> None:
        self.member.execute(name, commands.encode(command), lambda _: None)

    def sync(self) -> None:
        durable = self.store.sync()
        self.lane.synced(durable)
        if number := self.lane.take_stored():
            self.member.group.durable(number)
        self.member.synced(durable)

    def turn(self) -> None:
        """End a turn as a node does."""
        group, stirred = self.member.group, True
        while stirred:
            stirred = False
            if self.lane.stirred:
                *_, (unsent, raft_due, lead_due), _ = self.lane.turn()
                for node, kind, head, data in unsent:
                    # There are no replicas here, so what is for this node comes back.
                    assert (node, kind) == (NODE, Commit.KIND)
                    message = codec.decode(kind, head, memoryview(data or b""))
                    self.own.append(message)
                if raft_due:
                    group.stir()
                group.stirred = group.stirred or lead_due
            if group.stirred:
                stirred = self.member.flush()
                self.let()
        self._take_sent()

    def let(self) -> None:
        if not self.laned:
            self.lane.take_heard()
            return
        self.lane.write_into(self.member.lane_writes)
        leads = self.member.group.leadership
        if leads is not None and leads.ready:
            leads.let(self.lane, self.member.group.repository.state)
        else:
            self.lane.resign()

    def settle(self) -> None:
        """Apply what the lane has left."""
        self.member.group.stir()
        self.turn()

    # what is compared

    def entries(self) -> list[object]:
        """Return what is in the log; what a cut forgets depends on what is applied."""
        core = self.member.group.raft.core
        found = core.log.read(core.log.base.index + 1, core.log.last + 1, 1 << 30)
        return [(each.index, each.term, _meaning(each)) for each in found]

    def stored(self) -> list[object]:
        return [
            (each.index, each.term, _meaning(each)) for each in self.log.load().entries
        ]

    def told(self) -> object:
        """Return what each node was told since the last call, by its kind.

        What is only told again is left out: in the lane a report that says nothing new
        asks for no cuts, and the next full one does.
        """
        sent, self.sent = self.sent, {node: [] for node in OTHERS}
        own, self.own[:] = list(self.own), []
        said = {
            node: (
                _of_group(data for each, data in all_ if isinstance(each, Consensus)),
                self._first(node, [each for each, _ in all_]),
                [each for each, _ in all_ if isinstance(each, Configure)],
            )
            for node, all_ in sent.items()
        }
        return said, self._first(NODE, own)

    def _first(self, node: int, messages: list[Message]) -> list[object]:
        known = self.cuts.setdefault(node, {})
        found = [
            cut for each in messages if isinstance(each, Commit) for cut in each.cuts
        ]
        new: list[object] = []
        for cut in found:
            if cut.version not in known:
                known[cut.version] = cut
                new.append(cut)
            assert known[cut.version] == cut, "it was told otherwise before"
        return new

    def standing(self) -> object:
        core, state = self.member.group.raft.core, self.member.group.repository.state
        ends = {
            each.stream: (each.committed, each.last_version, each.epoch, each.status)
            for each in state.streams.values()
        }
        logs = [(each.version, each.high_watermark) for each in state.logs.values()]
        log = core.log
        return core.role, core.term, log.commit, log.durable, log.applied, ends, logs


def _meaning(entry: Entry) -> object:
    if entry.kind is not EntryKind.DATA:
        return entry.kind, entry.data
    command = commands.decode_call(entry.data).command
    return command.cuts if isinstance(command, commands.Cut) else command


def _of_group(messages: Iterable[bytes]) -> list[object]:
    """Return what messages of the group say; they may be sent in any order."""
    return sorted(map(_said, messages), key=repr)


def _said(data: bytes) -> object:
    message = raft_codec.decode_message(data)
    if isinstance(message, Append):
        entries = [(each.index, each.term, _meaning(each)) for each in message.entries]
        # Commits are counted at the end of the turn there, and with an answer here.
        return message.receiver, message.term, message.prev_index, entries
    if isinstance(message, Heartbeat):
        return message.receiver, message.term, message.round
    return message
