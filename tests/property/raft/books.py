"""The log of a group in the core and its models, which get the same calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from braidlog.raft import (
    Base,
    Entry,
    EntryKind,
    HardState,
    Membership,
    RaftConfig,
    RaftInvariantError,
    RaftMessageError,
)
from braidlog.raft.codec import decode_message, encode
from braidlog.raft.log import Frame, RaftLog
from braidlog.raft.messages import Append
from braidlog.raft.progress import Mode
from property.raft.model.log import RaftLog as ModelLog
from property.raft.model.progress import Progress
from property.raft.model.writes import Writes

NODE, TERM = 1, 9


class Storage:
    """Reads entries back."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}

    def read(self, begin: int, end: int, bytes_max: int) -> list[Entry]:
        found: list[Entry] = []
        size = 0
        for index in range(begin, end):
            entry = self.entries[index]
            size += entry.size
            if found and size > bytes_max:
                break
            found.append(entry)
        return found


class Models:
    """Log, progress and writes as Python had them."""

    def __init__(self, config: RaftConfig, base: Base, reader: Storage | None) -> None:
        self.config = config
        self.log = ModelLog(base, reader, config.cache_bytes_max)
        self.writes = Writes(self.log, HardState())
        self.peers: dict[int, Progress] = {}

    def track(self, nodes: list[int]) -> None:
        for node in nodes:
            self.peers.setdefault(node, Progress(next=self.log.last))
        for node in self.peers.keys() - set(nodes):
            del self.peers[node]

    def check(self) -> None:
        for progress in self.peers.values():
            progress.check(self.log.last)

    def feed(self, tell: bool) -> list[Append | int]:
        """Feed all peers; as `replication.feed` did it."""
        out: list[Append | int] = []
        for node in sorted(self.peers):
            self._feed(out, node, tell)
        return out

    def _feed(self, out: list[Append | int], node: int, tell: bool) -> None:
        progress, log, config = self.peers[node], self.log, self.config
        if progress.rests(log.last) and not tell:
            return
        if progress.next <= log.base.index:
            if progress.mode is not Mode.BASE and progress.active:
                progress.sent_base(log.base.index)
                out.append(node)
            return
        while (
            progress.next <= log.last or progress.mode is Mode.PROBE
        ) and progress.room(config.window_messages, config.window_bytes):
            out.append(self._append(node, config.message_bytes_max))
        if progress.mode is Mode.REPLICATE:
            behind = progress.nudge and progress.match < progress.next - 1
            news = progress.commit_sent < min(log.commit, progress.next - 1)
            if behind or (tell and news):
                out.append(self._append(node, 0))

    def _append(self, node: int, bytes_max: int) -> Append:
        progress, log = self.peers[node], self.log
        end = log.last + 1 if bytes_max else progress.next
        entries = log.read(progress.next, end, bytes_max)
        prev = progress.next - 1
        prev_term = log.term(prev)
        assert prev_term is not None
        epoch, commit = log.membership.epoch, log.commit
        sent = Append(NODE, node, TERM, epoch, prev, prev_term, commit, entries)
        size = sum(entry.size for entry in entries)
        progress.sent(prev + len(entries), size, log.commit)
        return sent


class Books:
    """Both; each method is one call, whose results have to be equal."""

    def __init__(self, config: RaftConfig, base: Base, *, reader: bool) -> None:
        self.storage = Storage()
        storage = self.storage if reader else None
        self.core = RaftLog(config, base, storage)
        self.models = Models(config, base, storage)
        self.failed = False

    @property
    def log(self) -> ModelLog:
        return self.models.log

    def both(
        self, core: Callable[[], Any], model: Callable[[], Any]
    ) -> tuple[Any, Any]:
        """Return what both give; where a rule breaks it has to break in both."""
        ours, theirs = _tried(core), _tried(model)
        if isinstance(ours, Exception) or isinstance(theirs, Exception):
            assert (type(ours), str(ours)) == (type(theirs), str(theirs))
            self.failed = isinstance(ours, RaftInvariantError)
        return ours, theirs

    def same(self, core: Callable[[], Any], model: Callable[[], Any]) -> Any:
        ours, theirs = self.both(core, model)
        if not isinstance(ours, Exception):
            assert ours == theirs
        return ours

    def compare(self) -> None:
        """Everything that can be seen of them is equal."""
        core, log, writes = self.core, self.log, self.models.writes
        for name in (
            *("last", "last_term", "commit", "durable", "applied", "handed"),
            *("install_pending", "has_committed", "membership", "base"),
        ):
            assert getattr(core, name) == getattr(log, name), name
        assert core.cached_count == len(log._entries)
        assert core.tail_bytes() == log.tail_bytes()
        first = max(log.base.index - 1, 0)
        for index in range(first, log.last + 3):
            assert core.term(index) == log.term(index)
        assert [m.epoch for m in core._memberships] == [
            m.epoch for m in log._memberships
        ]
        assert core.peers == list(self.models.peers)
        rests = all(p.rests(log.last) for p in self.models.peers.values())
        assert core.peers_rest == rests
        for node, progress in self.models.peers.items():
            known = core.progress(node)
            for name in Progress.__dataclass_fields__:
                if name.startswith("_"):
                    continue
                assert getattr(known, name) == getattr(progress, name), name
        assert writes.number >= writes.durable_number

    # --- calls

    def do_append(self, steps: list[int], kind: EntryKind, data: bytes) -> None:
        entries = []
        term = self.log.last_term
        for index, step in enumerate(steps, self.log.last + 1):
            term += step
            entries.append(_entry(index, term, kind, data))
        self.same(lambda: self.core.append(entries), lambda: self.log.append(entries))

    def do_misplaced(self, index: int, term: int) -> None:
        entries = [Entry(index, term, data=b"x")]
        self.same(lambda: self.core.append(entries), lambda: self.log.append(entries))

    def do_splice(self, back: int, count: int, step: int) -> None:
        """Send what a leader may send, in part what is here already."""
        begin = max(self.log.last + 1 - back, self.log.base.index + 1)
        term = (self.log.term(begin) or self.log.last_term) + step
        entries = tuple(
            Entry(index, term, data=b"s") for index in range(begin, begin + count)
        )
        at = self.same(
            lambda: self.core.splice(entries), lambda: self.log.splice(entries)
        )
        if isinstance(at, int):
            self.core.clip(at)
            self.models.writes.cut(at)

    def do_commit(self, ahead: int) -> None:
        index = max(self.log.commit + ahead, 0)
        self.same(lambda: self.core.commit_to(index), lambda: self.log.commit_to(index))

    def do_fold(self, back: int) -> None:
        index = max(self.log.applied - back, 0)
        if index <= self.log.base.index or self.log.install_pending:
            return
        self.same(
            lambda: self.core.fold(index, b"state"),
            lambda: self.log.fold(index, b"state"),
        )
        self._base_changed(reset=False)

    def do_install(self, ahead: int) -> None:
        index = max(self.log.commit + ahead, 0)
        base = Base(index, self.log.last_term + 1, Membership((1, 2), epoch=0), b"far")
        done = self.same(
            lambda: self.core.restart_at(base), lambda: self.log.restart_at(base)
        )
        if done is None:
            self._base_changed(reset=True)

    def _base_changed(self, *, reset: bool) -> None:
        self.core.base_changed(reset=reset)
        self.models.writes.base_changed(reset=reset)

    def do_write(self, vital: bool) -> None:
        writes = self.models.writes
        state = HardState(writes._stored.term + vital)
        taken, write = self.both(
            lambda: self.core.take_write(vital), lambda: writes.take(state)
        )
        if isinstance(taken, Exception):
            return
        if write is None:
            assert taken is None
            return
        number, has_base, reset, entries = taken
        assert (number, entries) == (write.number, write.entries)
        assert (has_base, reset) == (write.base is not None, write.reset)
        self.storage.entries |= {entry.index: entry for entry in entries}

    def do_stored(self, ahead: int) -> None:
        writes = self.models.writes
        number = max(writes.durable_number + ahead, 0)
        self.same(lambda: self.core.stored(number), lambda: writes.durable(number))

    def do_promise(self, message: str) -> None:
        self.core.promise(message)
        self.models.writes.promise(message)  # type: ignore[arg-type]

    def do_release(self) -> None:
        self.same(self.core.release, self.models.writes.release)

    def do_take_base(self) -> None:
        core = self.core
        self.same(
            lambda: core.base if core.hand_out_base() else None, self.log.take_base
        )

    def do_take(self, bytes_max: int) -> None:
        self.same(
            lambda: self.core.take_committed(bytes_max),
            lambda: self.log.take_committed(bytes_max),
        )

    def do_applied(self, back: int) -> None:
        index = max(self.log.handed - back, 0)
        self.same(
            lambda: self.core.applied_to(index), lambda: self.log.applied_to(index)
        )

    def do_read(self, begin: int, count: int, bytes_max: int) -> None:
        begin += self.log.base.index
        self.same(
            lambda: self.core.read(begin, begin + count, bytes_max),
            lambda: self.log.read(begin, begin + count, bytes_max),
        )

    def do_ask(self, index: int, term: int) -> None:
        assert self.core.last_not_after(index, term) == self.log.last_not_after(
            index, term
        )
        assert self.core.up_to_date(index, term) == self.log.up_to_date(index, term)

    # --- peers

    def do_track(self, nodes: list[int]) -> None:
        # A leader's first entry is there before it has peers.
        if self.log.last:
            self.core.track(nodes)
            self.models.track(nodes)

    def do_feed(self, tell: bool) -> None:
        ours, theirs = self.both(
            lambda: self.core.feed(TERM, self.log.membership.epoch, tell=tell),
            lambda: self.models.feed(tell),
        )
        if not isinstance(ours, Exception):
            plain = [
                decode_message(e.data) if isinstance(e, Frame) else e for e in ours
            ]
            assert plain == theirs

    def do_peer(self, act: str, node: int, back: int, other: int) -> None:
        progress, last = self.models.peers.get(node), self.log.last
        if progress is None:
            return
        index = max(last - back, 0)
        resume = min(other, last)
        log = self.core
        calls: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
            "accepted": (
                lambda: log.accepted(node, index),
                lambda: progress.accepted(index, self.log.base.index + 1),
            ),
            "rejected": (
                lambda: log.rejected(node, index, resume),
                lambda: progress.rejected(index, resume),
            ),
            "answered": (lambda: log.answered(node), progress.answered),
            "lost": (lambda: log.lost(node), progress.lost),
        }
        self.same(*calls[act])
        self.same(log.check, self.models.check)

    def do_quorum(self) -> None:
        active = [node for node, p in self.models.peers.items() if p.active]
        for progress in self.models.peers.values():
            progress.active = False
            progress.base_ticks += 1
        assert self.core.take_active() == active
        self.core.tick_bases()


def _entry(index: int, term: int, kind: EntryKind, data: bytes) -> Entry:
    if kind is EntryKind.MEMBERSHIP:
        data = encode(Membership((1, 2), epoch=index))
    return Entry(index, term, kind, data)


def _tried(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (RaftInvariantError, RaftMessageError) as error:
        return error
