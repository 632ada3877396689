"""Text scripts against a group of replicas, and what happens as text.

A line `> command` is followed by what it prints. Nothing arrives, is synced or passes
unless a command says so. Node 0 is the metadata repository.

    group 1 2 3 [learners 4] [others 5]     new replicas on empty disks
    open                     everybody enters the epoch (also of a new one)
    append 1 a b:3           one group; `:3` is the number of records
    produce 1 9.1            sequence 1 of producer 9
    deliver [1>2 ...]        lose [1>2 ...]    settle
    sync 1 2                 tick 1 [seconds]
    cut [other]              run [other]       resend 1
    epoch 1 2 [learners 4] [sealed]            configure 1 2       trim 5
    crash 1 [kept]           start 1           start_empty 1
    status                   log 1

`quiet` before a command prints nothing.
"""

from __future__ import annotations

from typing import Any

from braidlog.errors import LogError
from braidlog.wire.messages import StreamReport, StreamStatus
from unit.logstream.group import Group, Letter
from unit.logstream.memory import MemoryStorage, batch, text_of

HIDDEN = {"stream", "log", "name", "options", "sizes", "bytes_max"}


class Script:
    """A group driven by commands."""

    def __init__(self) -> None:
        self.group = Group((1,))
        self.out: list[str] = []
        self.kept: list[Letter] = []

    def run(self, line: str) -> list[str]:
        """Run one command; return what it prints."""
        words = line.split()
        quiet = words[0] == "quiet"
        name, *arguments = words[1:] if quiet else words
        self.out = []
        known = len(self.group.letters)
        try:
            getattr(self, f"do_{name}")(*arguments)
        except LogError as error:
            self.out.append(f"{type(error).__name__}: {error.message}")
        if name not in ("group", "deliver", "lose"):
            self.out += [show(letter) for letter in self.group.letters[known:]]
        for request, answer in self.group.answers:
            self.out.append(f"{request}: {value(answer)}")
        self.group.answers.clear()
        return [] if quiet else self.out

    def do_group(self, *words: str) -> None:
        nodes = split(words)
        self.group = Group(nodes[""], nodes["learners"], nodes["others"])
        self.group.letters.clear()

    def do_open(self) -> None:
        self.group.open()
        self.do_status()

    def do_append(self, node: str, *texts: str) -> None:
        items = []
        for each in texts:
            text, _, count = each.partition(":")
            items.append((text, 0, batch(text, int(count or 1))))
        self.group.append(int(node), *items)

    def do_produce(self, node: str, name: str) -> None:
        producer, sequence = map(int, name.split("."))
        self.group.append(int(node), (name, 0, batch(name, 1, producer, sequence)))

    def do_deliver(self, *ways: str) -> None:
        for letter in self._take(ways):
            self.group.deliver(letter)
            self.out += [show(new) for new in self.group.letters]
            self.kept += self.group.letters
            self.group.letters = []
        self.group.letters = self.kept

    def do_lose(self, *ways: str) -> None:
        self._take(ways)
        self.group.letters = self.kept

    def _take(self, ways: tuple[str, ...]) -> list[Letter]:
        letters, self.group.letters = self.group.letters, []
        taken = [each for each in letters if not ways or way(each) in ways]
        self.kept = [each for each in letters if each not in taken]
        return taken

    def do_settle(self) -> None:
        self.group.settle()

    def do_sync(self, *nodes: str) -> None:
        for node in nodes:
            self.group.sync(int(node))

    def do_tick(self, node: str, seconds: str = "1") -> None:
        self.group.tick(int(node), float(seconds))

    def do_cut(self, other: str = "0") -> None:
        cut = self.group.repository.cut(int(other))
        self.group.publish(cut)
        if cut is None:
            self.out.append("nothing to cut")

    def do_run(self, other: str = "0") -> None:
        self.group.run(int(other))

    def do_resend(self, node: str) -> None:
        for cut in self.group.repository.missed(int(node)):
            self.group.publish(cut, int(node))

    def do_epoch(self, *words: str) -> None:
        sealed = "sealed" in words
        nodes = split([word for word in words if word != "sealed"])
        status = StreamStatus.SEALED if sealed else StreamStatus.RUNNING
        config = self.group.repository.configure(nodes[""], nodes["learners"], status)
        self.out.append(f"epoch {config.epoch} starts at {config.start}")

    def do_configure(self, *nodes: str) -> None:
        self.group.configure(*map(int, nodes))

    def do_trim(self, glsn: str) -> None:
        self.group.repository.trim_to(int(glsn))

    def do_crash(self, node: str, kept: str = "0") -> None:
        self.group.crash(int(node), int(kept))

    def do_start(self, node: str) -> None:
        self.group.start(int(node), self.group.disks[int(node)])

    def do_start_empty(self, node: str) -> None:
        self.group.start(int(node), MemoryStorage())

    def do_status(self) -> None:
        for node, replica in sorted(self.group.replicas.items()):
            stored = self.group.disks[node].state()
            state = "dropped" if replica.dropped else replica.state.name
            self.out.append(
                f"{node} is {state} epoch {stored.epoch} low {stored.low} "
                f"committed {stored.committed} next {stored.next} "
                f"version {stored.context.version}"
            )

    def do_log(self, node: str) -> None:
        rows = [
            f"{llsn}/{glsn} {text}" for llsn, glsn, text in self.group.log(int(node))
        ]
        self.out.append(", ".join(rows) or "empty")


def split(words: Any) -> dict[str, tuple[int, ...]]:
    nodes: dict[str, tuple[int, ...]] = {"": (), "learners": (), "others": ()}
    part = ""
    for word in words:
        if word.isdigit():
            nodes[part] += (int(word),)
        else:
            part = word
    return nodes


def way(letter: Letter) -> str:
    return f"{letter[0]}>{letter[1]}"


def value(thing: Any) -> str:
    if isinstance(thing, LogError):
        return f"{type(thing).__name__} {thing.outcome}: {thing.message}"
    fields = [
        f"{name} {getattr(thing, name)}"
        for name in thing.__struct_fields__
        if name not in HIDDEN and name not in ("runs", "epochs")
    ]
    runs = [value(run) for run in getattr(thing, "runs", ())]
    return " ".join([type(thing).__name__, *fields, *[f"[{run}]" for run in runs]])


def show(letter: Letter) -> str:
    texts = [text_of(data) for data in letter[3] if data[:4] == b"BRB1"]
    if isinstance(letter[2], StreamReport):
        report = letter[2]
        return (
            f"{way(letter)} report epoch {report.epoch} version {report.version} "
            f"committed {report.committed} end {report.end} state {report.state}"
        )
    return " ".join([way(letter), value(letter[2]), *texts])
