"""One stream under a seed: lost, repeated and late messages, crashes, new epochs."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from braidlog.errors import LogError
from braidlog.logstream import ReplicaState
from braidlog.wire.messages import Appended, StreamConfig, StreamReport, StreamStatus
from property.logstream.checkers import Checker, require
from unit.logstream.group import Group, Letter
from unit.logstream.memory import MemoryStorage, batch


@dataclass(frozen=True)
class Storm:
    """How often what happens, of a thousand steps."""

    lose: int = 20
    repeat: int = 20
    crash: int = 5
    epoch: int = 4
    trim: int = 3
    full: int = 1
    forget: int = 10
    deaf: int = 0
    """How often a node begins or ceases to miss every configuration."""
    stuff: int = 0
    """How often a disk begins or ceases to have no room for any write."""
    steps: int = 800


STORMS = {
    "calm": Storm(lose=0, repeat=0, crash=0, epoch=3, trim=0, full=0, forget=0),
    "lossy": Storm(lose=80, repeat=60, crash=1, epoch=4),
    "crashes": Storm(crash=14),
    "epochs": Storm(epoch=14, lose=120),
    "deaf": Storm(deaf=20, epoch=8),
    "trims": Storm(trim=20, epoch=8, lose=50),
    "stuffed": Storm(stuff=25, trim=8, epoch=8, crash=3),
}
NODES = (1, 2, 3, 4, 5)


@dataclass
class Client:
    """A producer that sends one batch until it is answered."""

    number: int
    sequence: int = 1
    attempt: int = 0
    waiting: bool = False

    @property
    def text(self) -> str:
        return f"{self.number}.{self.sequence}"


class Simulation:
    """A run of one seed."""

    def __init__(self, seed: int, storm: Storm) -> None:
        self.random = Random(seed)
        self.storm = storm
        count = self.random.choice((1, 2, 3, 3))
        self.group = Group(NODES[:count], (4,), tuple({*NODES} - {*NODES[:count], 4}))
        self.checker = Checker(self.group)
        self.clients = [Client(n) for n in (1, 2, 3)]
        self.loners = 0
        self.held: list[Letter] = []
        self.deaf: set[int] = set()
        self.asked: dict[object, int] = {}
        """Node by request that was neither answered nor lost in a crash."""
        self.texts: dict[object, tuple[str, Client | None]] = {}
        self.holders = set(NODES[:count])
        self.was_open = False
        self.group.configure()

    # --- steps

    def run(self) -> Simulation:
        for step in range(self.storm.steps):
            self._step()
            self._look(deep=step % 8 == 0)
        self._rest()
        self.checker.end()
        return self

    def _step(self) -> None:
        storm, group = self.storm, self.group
        dice = self.random.randrange(1000)
        for chance, action in (
            (storm.crash, self._crash),
            (storm.epoch, self._epoch),
            (storm.trim, self._trim),
            (storm.full, self._fill),
            (storm.forget, self._forget),
            (storm.deaf, self._deafen),
            (storm.stuff, self._stuff),
            (15, self._configure),
            (60, self._restart),
            (110, self._append),
            (60, self._cut),
            (10, self._resend),
            (110, self._sync),
            (80, self._tick),
            (20, self._read),
        ):
            if dice < chance:
                action()
                return
            dice -= chance
        if self.held and self.random.randrange(12) == 0:
            index = self.random.randrange(len(self.held))
            self._hand_over(self.held.pop(index))
        for _ in range(min(3, len(group.letters))):
            self._deliver()

    def _deliver(self) -> None:
        letters = self.group.letters
        # Mostly in order, as connections are, and sometimes not.
        late = self.random.randrange(6) == 0
        index = self.random.randrange(len(letters)) if late else 0
        letter = letters.pop(index)
        dice = self.random.randrange(1000)
        if dice < self.storm.lose:
            # Half of them come back when nobody expects them any more.
            if self.random.randrange(2):
                self.held.append(letter)
            return
        if dice < self.storm.lose + self.storm.repeat:
            letters.append(letter)
        self._hand_over(letter)

    def _hand_over(self, letter: Letter) -> None:
        if isinstance(letter[2], StreamConfig) and letter[1] in self.deaf:
            return
        if isinstance(letter[2], StreamReport):
            # Reports are numbered: the repository drops those that are late.
            known = self.group.repository.reports.get(letter[0])
            if known is not None and letter[2].epoch < known.epoch:
                return
            same = known is not None and letter[2].epoch == known.epoch
            if same and known is not None and letter[2].end < known.end:
                return
        self.group.deliver(letter)

    def _append(self) -> None:
        config = self.group.repository.config
        node = self.random.choice((config.replicas[0],) * 4 + NODES)
        if node not in self.group.replicas:
            return
        known = self.random.choice((0, 0, config.epoch, config.epoch - 1))
        chosen = self.random.sample(self.clients, self.random.randrange(1, 4))
        items = [
            (*self._request(client), known)
            for client in chosen
            if not client.waiting or self.random.randrange(3) == 0
        ]
        if self.random.randrange(3) == 0:
            self.loners += 1
            request, text = ("loner", self.loners), f"loner {self.loners}"
            self.texts[request] = (text, None)
            items.append((request, batch(text, self.random.randrange(1, 4)), known))
        group = [(request, epoch, data) for request, data, epoch in items]
        self.asked.update((request, node) for request, _, _ in group)
        self.group.append(node, *group)

    def _request(self, client: Client) -> tuple[object, bytes]:
        client.attempt += 1
        client.waiting = True
        request = (client.number, client.sequence, client.attempt)
        self.texts[request] = (client.text, client)
        count = 1 + (client.number + client.sequence) % 3
        return request, batch(client.text, count, client.number, client.sequence)

    def _node(self) -> int:
        return self.random.choice(NODES)

    def _cut(self) -> None:
        other = self.random.choice((0, 0, 1, 3))
        self.group.publish(self.group.repository.cut(other), *NODES)

    def _resend(self) -> None:
        node = self._node()
        for cut in self.group.repository.missed(node):
            self.group.publish(cut, node)

    def _configure(self) -> None:
        self.group.configure(self._node(), self._node())

    def _sync(self) -> None:
        for node in (self._node(), self._node()):
            if node in self.group.replicas:
                self.group.sync(node)

    def _tick(self) -> None:
        node = self._node()
        if node not in self.group.replicas:
            return
        self.group.tick(node, self.random.choice((0.2, 0.7, 2.0)))
        report = self.group.replicas[node].report()
        self.group.letters.append((node, 0, report, ()))
        config = self.group.repository.config
        if report.epoch != config.epoch:
            if self.random.randrange(2):
                self.group.configure(node)
        elif node in config.replicas and report.state is ReplicaState.STARTING:
            self._epoch()

    def _crash(self) -> None:
        node = self._node()
        if node in self.group.replicas:
            disk = self.group.disks[node]
            behind = len(disk.calls) - disk.synced
            self.group.crash(node, self.random.randrange(behind + 1))
            self.asked = {r: n for r, n in self.asked.items() if n != node}

    def _restart(self) -> None:
        node = self._node()
        if node not in self.group.replicas:
            self.group.start(node, self.group.disks[node])

    def _epoch(self) -> None:
        count = self.random.choice((1, 2, 3, 3))
        holder = self.random.choice(sorted(self.holders))
        rest = [node for node in self._alive() if node != holder]
        count = min(count, len(rest) + 1)
        replicas = [holder, *self.random.sample(rest, count - 1)]
        self.random.shuffle(replicas)
        others = [node for node in NODES if node not in replicas]
        learners = self.random.sample(others, self.random.randrange(2))
        sealed = self.random.randrange(6) == 0
        status = StreamStatus.SEALED if sealed else StreamStatus.RUNNING
        self.group.repository.configure(tuple(replicas), tuple(learners), status)
        self.was_open = False
        self.holders &= set(replicas)
        self.group.configure(*NODES)

    def _deafen(self) -> None:
        self.deaf ^= {self._node()}

    def _alive(self) -> list[int]:
        """Return whom the repository takes for alive, mostly."""
        if self.random.randrange(4) == 0:
            return list(NODES)
        return sorted(self.group.replicas)

    def _trim(self) -> None:
        repository = self.group.repository
        repository.trim_to(self.random.randrange(1, repository.high_watermark + 2))
        self.group.configure(*NODES)

    def _fill(self) -> None:
        disk = self.group.disks[self._node()]
        disk.full = not disk.full

    def _stuff(self) -> None:
        disk = self.group.disks[self._node()]
        disk.stuffed = not disk.stuffed

    def _forget(self) -> None:
        """Keep only the cuts that some replica has not reported."""
        repository = self.group.repository
        reports = [repository.reports.get(n) for n in repository.config.replicas]
        if repository.open:
            versions = [report.version if report else 0 for report in reports]
            repository.forgotten = max(repository.forgotten, min(versions))

    def _read(self) -> None:
        node = self._node()
        if node in self.group.replicas:
            top = self.group.repository.high_watermark
            self.checker.logs()
            self.checker.read(node, self.random.randrange(1, top + 2))

    # --- what came of it

    def _look(self, *, deep: bool) -> None:
        for sender, receiver, message, _ in self.group.letters:
            if receiver == 0 and sender in self.group.replicas:
                self._seen(sender, message)
        answers, self.group.answers = self.group.answers, []
        for request, answer in answers:
            self._answered(request, answer)
        repository = self.group.repository
        if repository.open and not self.was_open:
            self.was_open = True
            self.holders = set(repository.config.replicas)
        for node, replica in list(self.group.replicas.items()):
            if replica.dropped:
                # The node deletes it; it may come back as one that is new.
                self.checker.epochs.pop(node, None)
                repository.reports.pop(node, None)
                self.group.letters = [
                    letter for letter in self.group.letters if letter[0] != node
                ]
                self.held = [letter for letter in self.held if letter[0] != node]
                self.group.start(node, MemoryStorage())
        if deep:
            self.checker.logs()

    def _seen(self, node: int, message: StreamReport) -> None:
        current = self.group.replicas[node].report()
        if message == current:
            self.checker.report(node, message)

    def _answered(self, request: object, answer: Appended | LogError) -> None:
        self.asked.pop(request, None)
        text, client = self.texts[request]
        self.checker.answer(request, text, answer, once=client is None)
        if client is None or client.text != text:
            return
        client.waiting = False
        if isinstance(answer, Appended):
            client.sequence += 1

    # --- the end

    def _rest(self) -> None:
        """Let everything work again; all must be answered and all logs equal."""
        group = self.group
        for node in NODES:
            group.disks[node].full = group.disks[node].stuffed = False
            if node not in group.replicas:
                group.start(node, group.disks[node])
        holder = min(self.holders)
        replicas = (holder, *[node for node in (1, 2, 3) if node != holder])
        learners = tuple({4, 5} - {holder})
        group.repository.configure(replicas, learners)
        for _ in range(80):
            self._round()
            self._look(deep=False)
        expected = group.repository.committed
        for node in (*replicas, *learners):
            replica = group.replicas[node]
            state = ReplicaState.LEARNING if node in learners else ReplicaState.RUNNING
            require(replica.state is state, f"{node} is {replica.state.name}")
            require(replica.committed == expected, f"{node} is at {replica.committed}")
            disk = group.disks[node]
            require(disk.model.stored.next == expected, f"{node}: a tail")
            kept = disk.llsn_of(group.repository.trim)
            require(disk.model.stored.low == kept, f"{node} did not trim to {kept}")
        require(not any(c.waiting for c in self.clients), "an append is not answered")
        require(not self.asked, f"never answered: {self.asked}")

    def _round(self) -> None:
        group = self.group
        group.configure(*NODES)
        primary = group.repository.config.replicas[0]
        for client in self.clients:
            if client.waiting:
                request, data = self._request(client)
                group.append(primary, (request, 0, data))
        group.publish(group.repository.cut(), *NODES)
        for node in NODES:
            group.tick(node, 0.5)
            for cut in group.repository.missed(node):
                group.publish(cut, node)
            report = group.replicas[node].report()
            group.letters.append((node, 0, report, ()))
        while group.letters:
            group.deliver(group.letters.pop(0))
        for node in NODES:
            group.sync(node)


def run(seed: int, storm: Storm) -> Simulation:
    """Run a seed; the same seed does the same."""
    return Simulation(seed, storm).run()
