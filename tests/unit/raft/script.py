"""Text scripts against a group of nodes, and what happens as text.

A line `> command` is followed by what it prints. Time passes and messages arrive only
when a command says so; jitter is constant; a disk syncs at once unless it is held.

    nodes 1 2 3 [learners 4] [setting=number]   a group; with `of 5`: node 5 waits
    load 1 1.1 2.1:x 3.2 term 3 vote 1 commit 2   put this on the disk of 1 and start
    tick 1 [count]            timeout 1 (as many ticks as node 1 still waits)
    deliver [1>2] [Kind ...]  settle     drop [1>2] [Kind ...]    repeat [1>2] [Kind]
    cut 1>2 | cut 1           heal       (cut 1: both ways, all others)
    propose 1 a b             read 1 7   transfer 1 2   unreachable 1 2
    change 1 +voter 4 +learner 5 -3 [stay] [force]      leave 1
    hold 1    release 1    sync 1 [count]    crash 1 [kept writes]     start 1
    truncate 1 5              save 1
    status                    log 1      progress 1

`quiet` before a command prints nothing, nor does `nodes`. An error prints its class and
its message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from braidlog.errors import LogError
from braidlog.raft import (
    Change,
    Effects,
    Entry,
    EntryKind,
    HardState,
    Membership,
    Message,
    ReadState,
    SoftState,
)
from braidlog.raft.codec import decode_membership
from unit.raft.server import Server, said

HIDDEN = {"sender", "receiver", "epoch"}


class Script:
    """A group of nodes and its network, driven by commands."""

    def __init__(self) -> None:
        self.servers: dict[int, Server] = {}
        self.queue: list[Message] = []
        self.cuts: set[tuple[int, int]] = set()
        self.held: set[int] = set()
        self.out: list[str] = []

    def run(self, line: str) -> list[str]:
        """Run one command; return what it prints."""
        words = line.split()
        quiet = words[0] == "quiet"
        name, *arguments = words[1:] if quiet else words
        self.out = []
        command: Callable[..., None] = getattr(self, f"do_{name}")
        try:
            command(*arguments)
        except LogError as error:
            self.out.append(f"! {type(error).__name__}: {error.message}")
        self.pump()
        return [] if quiet or name == "nodes" else self.out

    def pump(self) -> None:
        """Do what the nodes ask for, until nothing is left to do."""
        busy = True
        while busy:
            did = [self.pump_one(s) for s in self.servers.values() if s.up]
            busy = any(did)

    def pump_one(self, server: Server) -> bool:
        try:
            effects, messages = server.pump()
        except LogError as error:
            server.up = False
            self.out.append(f"{server.id} stops: {type(error).__name__}: {error}")
            return False
        self.show(server.id, effects)
        self.queue += [m for m in messages if (m.sender, m.receiver) not in self.cuts]
        if server.id not in self.held:
            server.sync()
        return bool(effects)

    def show(self, node: int, effects: Effects) -> None:
        if effects.soft_state is not None:
            self.out.append(f"{node} is {soft_text(effects.soft_state)}")
        write = effects.write
        if write is not None:
            parts = [f"{node} writes #{write.number}:"]
            if write.base is not None:
                parts.append(f"base {write.base.index}.{write.base.term}")
            parts += ["reset"] * write.reset
            if write.hard_state is not None:
                state = write.hard_state
                parts.append(f"term {state.term} vote {state.vote}")
                parts += ["removed"] * state.removed
            parts += map(entry_text, write.entries)
            self.out.append(" ".join(parts))
        for message in said(effects):
            lost = (message.sender, message.receiver) in self.cuts
            self.out.append(message_text(message) + " (lost)" * lost)
        if effects.install is not None:
            self.out.append(f"{node} installs {effects.install.index}")
        if effects.committed:
            texts = " ".join(map(entry_text, effects.committed))
            self.out.append(f"{node} applies {texts}")
        for read in effects.reads:
            text = f"at {read.index}" if isinstance(read, ReadState) else "failed"
            self.out.append(f"{node} read {read.context} {text}")

    # --- the group

    def do_nodes(self, *words: str) -> None:
        settings = dict(word.split("=") for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        voters, learners, waiting = split(plain, "learners", "of")
        membership = Membership(voters=voters, learners=learners)
        for node in (*voters, *learners, *waiting):
            known = Membership() if node in waiting else membership
            numbers = {key: int(value) for key, value in settings.items()}
            jitter = numbers.pop("jitter", 0)
            self.servers[node] = Server(node, known, partial(int, jitter), numbers)

    def do_load(self, node: str, *words: str) -> None:
        server = self.servers[int(node)]
        state = {"term": 0, "vote": 0, "commit": 0}
        entries = []
        for at, word in enumerate(words):
            if word in state:
                state[word] = int(words[at + 1])
            elif "." in word:
                entries.append(entry_of(word))
        server.disk.entries = entries
        server.disk.hard_state = HardState(
            state["term"], state["vote"], state["commit"]
        )
        server.start()

    def do_tick(self, node: str, count: str = "1") -> None:
        self.servers[int(node)].node.tick(int(count))

    def do_timeout(self, node: str) -> None:
        core = self.servers[int(node)].node.core
        self.servers[int(node)].node.tick(max(core.timeout - core.elapsed, 1))

    # --- the network

    def take(self, words: tuple[str, ...]) -> list[Message]:
        """Take the messages off the queue that the words choose."""
        ways = [tuple(w.split(">")) for w in words if ">" in w]
        kinds = [w for w in words if ">" not in w]

        def wanted(message: Message) -> bool:
            way = (str(message.sender), str(message.receiver))
            fits = not ways or any(
                all(given in ("", got) for given, got in zip(w, way, strict=True))
                for w in ways
            )
            return fits and (not kinds or type(message).__name__ in kinds)

        chosen = [m for m in self.queue if wanted(m)]
        self.queue = [m for m in self.queue if not wanted(m)]
        return chosen

    def do_deliver(self, *words: str) -> None:
        for message in self.take(words):
            server = self.servers[message.receiver]
            if server.up:
                server.node.step(message)
                self.pump()

    def do_settle(self) -> None:
        for _ in range(100):
            if not self.queue:
                return
            self.do_deliver()
        self.out.append("! does not come to rest")

    def do_drop(self, *words: str) -> None:
        self.take(words)

    def do_repeat(self, *words: str) -> None:
        chosen = self.take(words)
        self.queue += chosen + chosen

    def do_cut(self, *words: str) -> None:
        for word in words:
            a, _, b = word.partition(">")
            others = [int(b)] if b else [n for n in self.servers if n != int(a)]
            self.cuts |= {(int(a), other) for other in others}
            if not b:
                self.cuts |= {(other, int(a)) for other in others}
        self.queue = [m for m in self.queue if (m.sender, m.receiver) not in self.cuts]

    def do_heal(self) -> None:
        self.cuts.clear()

    # --- requests

    def do_propose(self, node: str, *data: str) -> None:
        self.servers[int(node)].node.propose([word.encode() for word in data])

    def do_read(self, node: str, context: str) -> None:
        self.servers[int(node)].node.read(int(context))

    def do_transfer(self, node: str, target: str) -> None:
        self.servers[int(node)].node.transfer(int(target))

    def do_unreachable(self, node: str, peer: str) -> None:
        self.servers[int(node)].node.unreachable(int(peer))

    def do_change(self, node: str, *words: str) -> None:
        _, voters, learners = split(list(words), "+voter", "+learner")
        change = Change(
            add_voters=voters,
            add_learners=learners,
            remove=tuple(int(w[1:]) for w in words if w[0] == "-"),
            stay_joint="stay" in words,
        )
        self.servers[int(node)].node.change_membership(change, force="force" in words)

    def do_leave(self, node: str) -> None:
        self.servers[int(node)].node.leave_joint()

    def do_truncate(self, node: str, index: str) -> None:
        self.servers[int(node)].truncate(int(index))

    # --- disks

    def do_hold(self, *nodes: str) -> None:
        self.held |= set(map(int, nodes))

    def do_release(self, *nodes: str) -> None:
        self.held -= set(map(int, nodes))

    def do_sync(self, node: str, count: str = "") -> None:
        self.servers[int(node)].sync(int(count) if count else None)

    def do_crash(self, node: str, kept: str = "0") -> None:
        self.servers[int(node)].crash(int(kept))

    def do_start(self, node: str) -> None:
        self.servers[int(node)].start()

    def do_save(self, node: str) -> None:
        self.servers[int(node)].save()

    # --- looking

    def do_status(self) -> None:
        for node, server in self.servers.items():
            if server.up:
                core = server.node.core
                self.out.append(
                    f"{node} {core.role.value} term {core.term} leader {core.leader} "
                    f"log {core.log.base.index + 1}..{core.log.last} "
                    f"commit {core.log.commit} applied {core.log.applied} "
                    + membership_text(core.membership)
                )

    def do_log(self, node: str) -> None:
        log = self.servers[int(node)].node.core.log
        entries = log.read(log.base.index + 1, log.last + 1, 1 << 40)
        self.out.append(" ".join(map(entry_text, entries)) or "empty")

    def do_progress(self, node: str) -> None:
        for peer, p in self.servers[int(node)].node.core.progress.items():
            self.out.append(f"{peer} {p.mode.value} match {p.match} next {p.next}")


def split(words: list[str], *marks: str) -> list[tuple[int, ...]]:
    """Return the numbers before the first mark, and behind each of them."""
    groups: dict[str, list[int]] = {"": [], **{mark: [] for mark in marks}}
    mark = ""
    for word in words:
        if word in groups:
            mark = word
        elif word.isdigit():
            groups[mark].append(int(word))
    return [tuple(groups[name]) for name in ("", *marks)]


def entry_of(word: str) -> Entry:
    position, _, data = word.partition(":")
    index, term = map(int, position.split("."))
    kind = EntryKind.DATA if data else EntryKind.EMPTY
    return Entry(index, term, kind, data.encode())


def entry_text(entry: Entry) -> str:
    text = f"{entry.index}.{entry.term}"
    if entry.kind is EntryKind.DATA:
        return f"{text}:{entry.data.decode()}"
    if entry.kind is EntryKind.MEMBERSHIP:
        return f"{text}:({membership_text(decode_membership(entry.data))})"
    return text


def membership_text(now: Membership) -> str:
    text = f"voters {','.join(map(str, now.voters)) or '-'}"
    for name in ("outgoing", "learners", "learners_next", "removed"):
        if getattr(now, name):
            text += f" {name} {','.join(map(str, getattr(now, name)))}"
    return text + " auto" * now.auto_leave


def soft_text(soft: SoftState) -> str:
    return (
        f"{soft.role.value} term {soft.term} leader {soft.leader} "
        f"commit {soft.commit} epoch {soft.epoch}"
    )


def message_text(message: Message) -> str:
    text = f"{message.sender}>{message.receiver} {type(message).__name__}"
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name == "entries":
            text += "".join(" " + entry_text(entry) for entry in value)
        elif name == "base":
            text += f" base {value.index}.{value.term}"
        elif name not in HIDDEN:
            text += f" {name} {value}"
    return text
