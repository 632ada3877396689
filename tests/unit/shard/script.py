"""Text scripts against a shard: what clients are told, and what readers get.

A line `> command` is followed by what it prints. All that follows from a command has
happened when the next one begins; only time does not pass by itself.

    members 1 2 3 [setting=number]     a new group; the first one leads
    append 1 a b,c [writer=1] [expected=1] [producer=7 sequence=0] [repeat]
                           to member 1: one batch `a`, and one with two records
    raw 1 00ff             an append of these bytes
    acquire 1 A [ttl=500] [expected=1] [force]      release 1 1      renew 1 1
    end 1                  where the log ends, linearizably
    stamps 1 100 [floor=7]     a hundred timestamps, none below the floor
    read 1 1 [bytes] [wait]     one page, from position 1     scan 1 1 [bytes]
    truncate 5             the leader lets all before position 5 go
    pin name 4 [lease=seconds]     unpin name     trim 5     as the repository decides
    tick [count]           cut 1 | cut 1>2     heal
    hold 1   let 1         crash 1 2   start 1 2   save 1   spoil 1 (its checkpoint)
    sleep 1   wake 1       what comes meanwhile waits; what is asked of it comes first
    plan 1 2 4.1           who should vote: node 4 for the second time
    message 1 00ff         bytes that come as a message
    transfer 1 2           status      same (whether all members have the same state)

An error prints its class, its fields and what is known; `retry`: a repeat may succeed.
`quiet` before a command prints nothing. `x*100` is a record of 100 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from braidlog import _native
from braidlog.errors import ConflictError, FencedError, LogError, TrimmedError
from braidlog.raft import NotLeaderError
from braidlog.shard.checkpoint import Checkpoint
from braidlog.shard.member import Ended, Granted, Placed
from braidlog.shard.stamps import Stamped
from braidlog.wire import commands
from braidlog.wire.members import member_of
from braidlog.wire.results import Refused, Result, Trimmed
from property.shard.shard_world import batch
from unit.metarepo.bench import LOG
from unit.shard.group import Group, member_text, members_text

PAGE_BYTES = 1 << 20


class Request:
    """What is asked for; it is named by its command and printed when it is answered."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.answered = False


class Script:
    """A group that is driven by commands."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self.requests: list[Request] = []
        self.group = Group((1,), {}, self.say)

    def run(self, line: str) -> list[str]:
        """Run one command; return what it prints."""
        words = line.split()
        quiet = words[0] == "quiet"
        name, *arguments = words[1:] if quiet else words
        self.out, self.requests = [], []
        command: Callable[..., None] = getattr(self, f"do_{name}")
        try:
            command(*arguments)
        except LogError as error:
            self.out.append(error_text(error))
        self.group.settle()
        self.out += [f"{r.name}: waits" for r in self.requests if not r.answered]
        return [] if quiet or name == "members" else self.out

    def say(self, what: Request | str, answer: object = "") -> None:
        """Print a line, or the answer of a request."""
        if isinstance(what, str):
            self.out.append(what)
            return
        text = answer_text(answer)
        # It must never be told twice.
        self.out.append(f"{what.name}: {text}" + " AGAIN" * what.answered)
        what.answered = True

    def ask(self, name: str) -> Request:
        request = Request(name)
        self.requests.append(request)
        return request

    # --- the group

    def do_members(self, *words: str) -> None:
        plain, settings = split(words)
        numbers = {key: int(value) for key, value in settings.items()}
        self.group = Group(tuple(map(int, plain)), numbers, self.say)
        for _ in range(20):
            if self.group.leader() is None:
                self.group.tick()

    def do_tick(self, count: str = "1") -> None:
        for _ in range(int(count)):
            self.group.tick()

    def do_cut(self, *words: str) -> None:
        for word in words:
            a, _, b = word.partition(">")
            one = member(a)
            if b:
                self.group.cuts.add((one, member(b)))
                continue
            for other in self.group.disks:
                self.group.cuts |= {(one, other), (other, one)}

    def do_heal(self) -> None:
        self.group.cuts.clear()

    def do_hold(self, *names: str) -> None:
        self.group.held |= set(map(member, names))

    def do_let(self, *names: str) -> None:
        self.group.held -= set(map(member, names))

    def do_sleep(self, *names: str) -> None:
        self.group.asleep |= set(map(member, names))

    def do_wake(self, *names: str) -> None:
        self.group.asleep -= set(map(member, names))

    def do_crash(self, *names: str) -> None:
        for name in names:
            self.group.crash(member(name))

    def do_start(self, *names: str) -> None:
        for name in names:
            self.group.start(member(name))

    def do_save(self, name: str) -> None:
        self.group.save(member(name))

    def do_spoil(self, name: str) -> None:
        """Damage the checkpoint of a member in some ways; then it has none."""
        disk = self.group.disks[member(name)]
        saved, disk.saved = disk.saved, None
        assert saved is not None
        data = saved.encode()
        for damaged in (b"", data[:-1], b"BSC2" + data[4:], data[4:]):
            try:
                Checkpoint.decode(damaged)
                self.say("taken as a checkpoint")
            except LogError as error:
                self.say(error_text(error))

    def do_plan(self, *names: str) -> None:
        self.group.decide(tuple(map(member, names)))

    def do_transfer(self, name: str, target: str) -> None:
        self.group.members[member(name)].transfer(member(target))

    def do_message(self, name: str, data: str) -> None:
        self.group.members[member(name)].step(bytes.fromhex(data))

    # --- requests

    def do_append(self, name: str, *words: str) -> None:
        plain, settings = split(words)
        numbers = {key: int(value) for key, value in settings.items()}
        values = [word for word in plain if word != "repeat"]
        batches = [
            (
                self.ask(f"append {word}"),
                batch(
                    [value_of(each) for each in word.split(",")],
                    numbers.get("producer", 0),
                    numbers.get("sequence", 0),
                ),
            )
            for word in values
        ]
        self.group.members[member(name)].append(
            batches,
            writer=numbers.get("writer", 0),
            expected=numbers.get("expected"),
            repeat="repeat" in plain,
        )

    def do_raw(self, name: str, data: str = "") -> None:
        one = self.group.members[member(name)]
        one.append([(self.ask(f"raw {data}".strip()), bytes.fromhex(data))])

    def do_acquire(self, name: str, owner: str, *words: str) -> None:
        plain, settings = split(words)
        expected = settings.get("expected")
        self.group.members[member(name)].acquire(
            self.ask(f"acquire {owner}"),
            owner,
            ttl_ms=int(settings.get("ttl", 0)),
            expected=None if expected is None else int(expected),
            force="force" in plain,
        )

    def do_release(self, name: str, writer: str) -> None:
        self.group.members[member(name)].release(self.ask("release"), int(writer))

    def do_renew(self, name: str, writer: str) -> None:
        self.group.members[member(name)].renew(self.ask("renew"), int(writer))

    def do_end(self, name: str) -> None:
        self.group.members[member(name)].find_end(self.ask(f"end {name}"))

    def do_stamps(self, name: str, count: str, *words: str) -> None:
        floor = int(split(words)[1].get("floor", 0))
        one = self.group.members[member(name)]
        one.timestamps(self.ask(f"stamps {count}"), int(count), floor)

    # --- readers

    def do_read(self, name: str, begin: str, *words: str) -> None:
        sizes = [int(word) for word in words if word.isdigit()]
        self._page(
            member(name),
            int(begin),
            *sizes or [PAGE_BYTES],
            expired="wait" not in words,
        )

    def do_scan(self, name: str, begin: str, bytes_max: str = str(PAGE_BYTES)) -> None:
        at: int | None = int(begin)
        while at is not None:
            before, at = at, self._page(member(name), at, int(bytes_max))
            if at == before:
                return

    def _page(
        self, one: int, begin: int, bytes_max: int, *, expired: bool = True
    ) -> int | None:
        """Print a page; return where to go on."""
        page = self.group.read(one, begin, bytes_max, expired=expired)
        if page is None:
            self.say(f"nothing yet, it waits at {begin}")
            return None
        records, batches = page
        # A client passes over what it did not ask for.
        words = [
            f"{record.position}:{text_of(bytes(record.value))}"
            for position, data in zip(records.llsns, batches, strict=True)
            for record in _native.Batch(data).records(position)
            if record.position >= begin
        ]
        self.say(f"{' '.join(words) or 'nothing yet'}, next {records.next}")
        return records.next

    # --- truncation

    def do_truncate(self, position: str) -> None:
        for each in self.group.members.values():
            each.truncate(int(position))

    def do_pin(self, name: str, position: str, *words: str) -> None:
        lease = int(split(words)[1].get("lease", 0)) * 1_000_000
        set_cursor = commands.SetCursor(
            LOG, name, int(position), pin=True, lease=lease, now=self.group.micros
        )
        self._decided(self.group.ask(set_cursor))

    def do_unpin(self, name: str) -> None:
        self._decided(self.group.ask(commands.DeleteCursor(LOG, name)))

    def _decided(self, result: Result) -> None:
        if isinstance(result, Refused):
            self.say(error_text(result.error()))

    def do_trim(self, position: str) -> None:
        trim = commands.Trim(LOG, int(position), now=self.group.micros)
        result = self.group.ask(trim)
        self._decided(result)
        if not isinstance(result, Trimmed):
            return
        self.say(f"the log begins at {result.first}")
        self.do_truncate(str(result.first))

    # --- looking

    def do_status(self) -> None:
        for one, each in self.group.members.items():
            core, state = each.raft.core, each.state
            role = "leads" if each.leads else core.role.value
            owner = f" owner {state.owner} {state.epoch}" * bool(state.owner)
            now = core.membership
            learners = f" learners {members_text(now.learners)}" * bool(now.learners)
            self.say(
                f"{member_text(one)} {role} term {core.term}: "
                f"entries {core.log.base.index + 1}..{core.log.last} "
                f"records {state.first}..{state.next - 1}{owner} "
                f"voters {members_text(now.voters)}{learners}"
            )

    def do_same(self) -> None:
        found: dict[bytes, list[int]] = {}
        for one, each in self.group.members.items():
            found.setdefault(each.state.snapshot(), []).append(one)
        groups = " | ".join(map(members_text, found.values()))
        self.say("all have the same state" if len(found) == 1 else f"differ: {groups}")


def split(words: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Return plain words, and what is given by name."""
    named = dict(word.split("=") for word in words if "=" in word)
    return [word for word in words if "=" not in word], named


def member(word: str) -> int:
    """Return the member that a word names."""
    node, _, generation = word.partition(".")
    return member_of(int(node), int(generation or 0))


def value_of(word: str) -> bytes:
    text, _, count = word.partition("*")
    return text.encode() * int(count or 1)


def text_of(value: bytes) -> str:
    text = value.decode()
    same = len(text) > 9 and not text.strip(text[0])
    return f"{text[0]}*{len(text)}" if same else text


def answer_text(answer: object) -> str:
    match answer:
        case Placed(position, count, _):
            return f"at {position}" if count == 1 else f"at {position}, {count} records"
        case Granted(epoch, end):
            return f"epoch {epoch}, next {end}"
        case Stamped(first):
            return f"from {first}"
        case Ended(first, end, epoch, owner):
            owned = f", owner {owner} epoch {epoch}" if owner else ""
            return f"records {first}..{end - 1}{owned}"
        case LogError():
            return error_text(answer)
    return str(answer)


def error_text(error: LogError) -> str:
    """Return an error by what callers may use of it."""
    kind = type(error).__name__
    match error:
        case NotLeaderError():
            text = f"leader {error.leader or '-'}"
        case FencedError():
            text = (
                f"given {error.given}, latest {error.current} of {error.owner or '-'}"
            )
        case ConflictError():
            text = f"expected {error.expected}, next {error.end}"
        case TrimmedError():
            text = f"first {error.first}"
        case _:
            text = re.sub(r"\s+", " ", error.message)
    words = [f"! {kind}: {text}"]
    if error.outcome == "unknown":
        words.append("outcome unknown")
    if error.retryable:
        words.append("retry")
    return ", ".join(words)
