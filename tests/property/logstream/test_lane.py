"""The lane does to replicas what Python does: two nodes, of which one has no lane.

Both get the same inputs. Those that are what is next go through the lane of the first;
the replicas of the second are never settled, so that Python looks at all of them.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from braidlog import _native
from braidlog.errors import LogError
from braidlog.logstream.effects import Limits
from braidlog.node.replication.replicas import Replicas
from braidlog.serving.sessions import Request
from braidlog.store.node_store import NodeStore
from braidlog.wire import codec
from braidlog.wire.messages import (
    Append,
    Commit,
    Configure,
    Feature,
    LogCut,
    Message,
    Replicate,
    StreamConfig,
    StreamRun,
    StreamStatus,
)
from unit.wire.frames import conn, encode_frame

NODE = 1
LOG = b"l" * 16
STREAMS = (7, 8)
LIMITS = Limits(uncommitted_bytes_max=4_000)


@dataclass(eq=False)
class Node:
    """A node, with all that its replicas asked it to do."""

    lane: bool
    sent: list[object] = field(default_factory=list)
    answers: list[object] = field(default_factory=list)
    taken: int = 0
    now: float = 0.0

    def __post_init__(self) -> None:
        self.store = NodeStore("/n", entropy=1, disk=_native.MemoryDisk())
        peers: Any = self
        self.replicas = Replicas(NODE, self.store, peers, LIMITS, lambda: None)
        self.conn = conn()
        self.conn.hot = True
        if self.lane:
            self.conn.lane = self.replicas.lane

    # as the other nodes

    def send(self, node: int, message: Message, payload: Any = ()) -> None:
        self.sent.append((node, message, [bytes(each) for each in payload]))

    # as a session

    def answer_appends(self, rows: list[tuple[int, ...]]) -> None:
        self.answers += rows

    def fail(self, number: int, error: LogError) -> None:
        self.answers.append((number, type(error).__name__, error.message))

    # inputs

    def hear(self, message: Message, payload: bytes = b"") -> None:
        frame = encode_frame(message.KIND, 0, codec.encode(message), [payload])
        *_, cold, end, (taken, *_) = self.conn.feed(frame, 0)
        assert end == len(frame)
        self.taken += taken
        if cold is None:
            return
        kind, _, head, data = cold
        heard = codec.decode(kind, head, memoryview(data))
        if isinstance(heard, Commit):
            self.replicas.commit(heard)
        else:
            assert isinstance(heard, Replicate)
            self.replicas.replicate(2, heard, memoryview(data))

    def append(self, message: Append, numbers: list[int], batches: list[bytes]) -> None:
        session: Any = self
        requests = [Request(session, number, float(numbers[0])) for number in numbers]
        self.replicas.append(message, requests, batches)

    def configure(self, configs: tuple[StreamConfig, ...], index: int) -> None:
        self.replicas.configure(Configure(index, configs))
        if not self.lane:
            for hosted in self.replicas._hosted.values():
                hosted.replica._settle = lambda: None  # type: ignore[method-assign]

    def sync(self) -> None:
        self.replicas.synced(self.store.sync())

    # what is compared

    def turn(self) -> object:
        reports = sorted(self.replicas.flush(self.now), key=lambda each: each.stream)
        # Streams are looked at in another order; within one the order counts.
        sent = {
            stream: [each for each in self.sent if _stream_of(each) == stream]
            for stream in STREAMS
        }
        answers = sorted(self.answers, key=repr)
        self.sent, self.answers = [], []
        return reports, sent, answers

    def standing(self) -> object:
        stored = [each.storage.state() for each in self._all()]
        cores: list[Any] = [each.replica.core for each in self._all()]
        known = [
            (core.low, core.committed, core.next, core.epoch, core.latest)
            + (core.durable_end, core.durable_version, core.durable_epoch, core.state)
            + (core.waiting, core.waiting_bytes, core.is_unsynced, core.now)
            + ((core.probe_at,) if core.waiting else ())
            for core in cores
        ]
        took = self.replicas.latencies.append
        return stored, known, self.replicas.counters, sum(took.counts)

    def _all(self) -> list[Any]:
        return [self.replicas._hosted[stream] for stream in STREAMS]


def _stream_of(sent: Any) -> int:
    stream: int = sent[1].stream
    return stream


class Walk:
    """Random inputs of two nodes, most of them what is next."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes = Node(lane=True), Node(lane=False)
        self.epoch = self.index = self.request = 0
        self.configs: dict[int, StreamConfig] = {}
        self.did: Counter[str] = Counter()
        self.enter()

    @property
    def cores(self) -> dict[int, Any]:
        hosted = self.nodes[0].replicas._hosted
        return {stream: hosted[stream].replica.core for stream in STREAMS}

    def enter(self) -> None:
        """Give every stream a new epoch."""
        self.epoch += 1
        for stream in STREAMS:
            known = self.configs.get(stream)
            core = self.cores[stream] if known is not None else None
            start = core.committed if core is not None else 1
            version, mark = self._last(stream)
            first = self.random.choice([NODE, 2])
            others = [node for node in (NODE, 2, 3) if node != first]
            past = (*known.epochs, (known.epoch, known.start)) if known else ()
            nulls = self.random.random() < 0.5
            self.configs[stream] = StreamConfig(
                stream=stream,
                log=LOG,
                name="log",
                epoch=self.epoch,
                status=StreamStatus.RUNNING,
                replicas=(first, *others),
                learners=(),
                start=start,
                epochs=past,
                version=version,
                high_watermark=mark,
                trim=known.trim if known else 0,
                options=b"",
                features=int(Feature.NULL_VALUES) if nulls else 0,
            )
        self.configure()

    def configure(self) -> None:
        self.index += 1
        for node in self.nodes:
            node.configure(tuple(self.configs.values()), self.index)

    def _last(self, stream: int) -> tuple[int, int]:
        if stream not in self.configs:
            return 0, 0
        core = self.cores[stream]
        return core.version, core.high_watermark

    def batch(self) -> bytes:
        count = self.random.randint(1, 3)
        values: list[bytes | None] = [
            self.random.randbytes(self.random.choice((0, 5, 900))) for _ in range(count)
        ]
        if self.random.random() < 0.05:
            values[0] = None
        if self.random.random() < 0.2:
            sequence = self.random.randint(0, 3)
            return _native.encode_batch(
                values, timestamps=0, producer=(9, 1), sequence=sequence
            )
        return _native.encode_batch(values, timestamps=0)

    # --- one input each

    def do_append(self) -> None:
        stream = self.random.choice(STREAMS)
        batches = [self.batch() for _ in range(self.random.randint(1, 4))]
        numbers = [self.request + n for n in range(1, len(batches) + 1)]
        self.request += len(batches)
        epoch = self.random.choice([0, self.epoch, self.epoch, self.epoch - 1])
        if self.random.random() < 0.03:
            batches[0] = batches[0][:-1]
        message = Append(stream, epoch, self.random.random() < 0.05)
        for node in self.nodes:
            node.append(message, numbers, batches)

    def do_replicate(self) -> None:
        stream = self.random.choice(STREAMS)
        core = self.cores[stream]
        batches = [self.batch() for _ in range(self.random.randint(0, 3))]
        offset = self.random.choice([0] * 12 + [-1, 1])
        epoch = self.random.choice([self.epoch] * 12 + [self.epoch - 1])
        sizes = tuple(len(batch) for batch in batches)
        message = Replicate(stream, epoch, max(1, core.next + offset), sizes)
        for node in self.nodes:
            node.hear(message, b"".join(batches))

    def do_cut(self) -> None:
        """Cut what is durable of some streams, or a cut that was missed or is known."""
        runs, glsn = [], max(core.high_watermark for core in self.cores.values()) + 1
        if self.random.random() < 0.05:
            glsn += 1
        for stream, core in self.cores.items():
            ready = core.durable_end - core.committed
            if core.durable_epoch != self.epoch or self.random.random() < 0.2:
                continue
            # A batch is in one cut as a whole.
            if ready > 0:
                runs.append(StreamRun(stream, core.committed, glsn, ready, self.epoch))
                glsn += ready
        newest = max(core.version for core in self.cores.values())
        version = newest + self.random.choice([1, 1, 1, 1, 2, 0])
        cut = LogCut(LOG, version, glsn - 1, tuple(runs))
        for _ in range(self.random.choice([1, 1, 2])):
            for node in self.nodes:
                node.hear(Commit((cut,)))

    def do_sync(self) -> None:
        for node in self.nodes:
            node.sync()

    def do_tick(self) -> None:
        after = self.random.choice([0.05, 0.05, 0.6])
        for node in self.nodes:
            node.now += after
            node.replicas.tick(node.now)

    def do_trim(self) -> None:
        for stream, core in self.cores.items():
            trim = self.random.randint(0, core.high_watermark)
            known = self.configs[stream]
            fields = {name: getattr(known, name) for name in known.__struct_fields__}
            fields["trim"] = max(known.trim, trim)
            self.configs[stream] = StreamConfig(**fields)
        self.configure()

    def do_enter(self) -> None:
        self.enter()

    def step(self) -> None:
        names = ["append", "replicate", "cut", "sync", "tick", "trim", "enter"]
        (name,) = self.random.choices(names, [10, 10, 8, 10, 3, 0.4, 0.8])
        self.did[name] += 1
        getattr(self, f"do_{name}")()
        self.compare()

    def compare(self) -> None:
        # Several inputs may come in one turn.
        if self.random.random() < 0.7:
            one, other = [node.turn() for node in self.nodes]
            assert one == other
            one, other = [node.standing() for node in self.nodes]
            assert one == other


@pytest.mark.parametrize("seed", range(30))
def test_the_lane_does_what_python_does(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(400):
        walk.step()
    lane, python = walk.nodes
    assert lane.taken > 10
    assert python.taken == 0
    for node in walk.nodes:
        node.store.close()
