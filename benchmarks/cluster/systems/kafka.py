"""Kafka: three brokers that are controllers too (KRaft), topics with three replicas.

`acks=all`: all replicas that are in sync have a record before it is acknowledged, at
least two. A topic is flushed after every message, or when the kernel likes to.
"""

import asyncio
import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path
from shutil import which
from threading import Thread
from typing import Any

from benchmarks.cluster import processes
from benchmarks.cluster.plan import Plan
from benchmarks.cluster.systems.system import Nodes, System
from benchmarks.contest import Unavailable

_READY_S = 60.0
_REPLICAS = 3
_PAGE = 5_000
# As Kafka's own script starts it, with a smaller heap.
_JAVA = (
    *("java", "-Xms512m", "-Xmx512m", "-server", "-XX:+UseG1GC"),
    *("-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35"),
    *("-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)


class Kafka:
    """A topic with so many partitions."""

    def __init__(self, address: dict[str, Any], *, flushed: bool) -> None:
        """Connect later."""
        servers = ",".join(f"127.0.0.1:{port}" for port in address["ports"])
        # The library is silent about brokers that were killed.
        self._settings = {"bootstrap.servers": servers, "log_level": 0}
        self._flushed = flushed
        self._topic = ""
        self._producer: Any = None
        self._consumer: Any = None
        self._partitions: cycle[int] = cycle(())
        self._open = False
        self._polls = Thread(target=self._poll, daemon=True)

    async def open(self, log: str, streams: int, *, make: bool) -> None:
        """Make the topic and begin a producer."""
        from confluent_kafka import Producer

        self._loop = asyncio.get_running_loop()
        self._topic = f"{log}-flushed" if self._flushed else log
        self._producer = Producer(
            {
                **self._settings,
                "acks": "all",
                # As long as it takes 64 callers to send what goes in one request.
                "linger.ms": 0.2,
                # One answer of a partition speaks for all before it.
                "enable.idempotence": True,
                "socket.nagle.disable": True,
                "topic.metadata.refresh.interval.ms": 5_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )
        if make:
            await asyncio.to_thread(self._make, streams)
        self._partitions = cycle(range(streams))
        self._open = True
        self._polls.start()

    def _make(self, streams: int) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        settings = {"flush.messages": "1"} if self._flushed else {}
        topic = NewTopic(self._topic, streams, _REPLICAS, config=settings)
        admin = AdminClient(self._settings)
        for made in admin.create_topics([topic]).values():
            made.result(_READY_S)
        deadline = time.monotonic() + _READY_S
        while [len(each.isrs) for each in self._parts()] != [_REPLICAS] * streams:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._topic} lacks replicas")
            time.sleep(0.2)

    def _parts(self) -> list[Any]:
        found = self._producer.list_topics(self._topic, timeout=_READY_S)
        return [
            each for _, each in sorted(found.topics[self._topic].partitions.items())
        ]

    def _poll(self) -> None:
        while self._open:
            self._producer.poll(0.1)

    async def append(self, value: bytes) -> None:
        """Send one message and wait for its acknowledgement."""
        await self.append_many((value,))

    async def append_many(self, values: Sequence[bytes]) -> None:
        """Send messages of one partition and wait for the last."""
        done: asyncio.Future[None] = self._loop.create_future()

        def answer(error: object, _: object) -> None:
            self._loop.call_soon_threadsafe(_settle, done, error)

        *others, last = values
        partition, produce = next(self._partitions), self._producer.produce
        for value in others:
            produce(self._topic, value, partition=partition)
        produce(self._topic, last, partition=partition, on_delivery=answer)
        await done

    async def read(self, count: int) -> int:
        """Fetch from the start of the first partition."""
        return await asyncio.to_thread(self._read, count)

    def _read(self, count: int) -> int:
        from confluent_kafka import Consumer, TopicPartition

        start = TopicPartition(self._topic, 0, 0)
        if self._consumer is None:
            # Without them it waits for half a second before it asks again.
            waits = {"fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 10}
            settings = {**self._settings, **waits, "group.id": "reader"}
            self._consumer = Consumer(settings)
            self._consumer.assign([start])
        else:
            self._consumer.seek(start)
        found = 0
        deadline = time.monotonic() + _READY_S
        while found < count and time.monotonic() < deadline:
            messages = self._consumer.consume(_PAGE, 0.05)
            found += sum(message.error() is None for message in messages)
        return found

    async def leader(self) -> int:
        """Return the broker that leads the first partition."""
        return int((await asyncio.to_thread(self._parts))[0].leader)

    async def recover(self) -> None:
        """Do nothing: the producer looks for the new leader and sends again."""

    async def close(self) -> None:
        """Disconnect."""
        if self._open:
            self._open = False
            await asyncio.to_thread(self._polls.join)
            self._producer.purge()
        if self._consumer is not None:
            await asyncio.to_thread(self._consumer.close)


def _settle(done: "asyncio.Future[None]", error: object) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(RuntimeError(str(error)))


def _start(plan: Plan, folder: Path, stack: ExitStack) -> Nodes:
    libraries = (plan.peers or Path("/usr/share/kafka")) / "kafka" / "libs"
    if not libraries.is_dir():
        raise Unavailable("kafka is not installed (make peers)")
    if which("java") is None:
        raise Unavailable("kafka needs Java 17")
    program = [*_JAVA, "-cp", f"{libraries}/*"]
    folder.mkdir(parents=True, exist_ok=True)
    numbers = processes.ports(6)
    files = [folder / f"n{i}.properties" for i in range(3)]
    for i, file in enumerate(files):
        file.write_text(_settings(i, numbers, folder))
    identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    formatting = ["kafka.tools.StorageTool", "format", "-t", f"k{identity[1:]}", "-c"]
    with ThreadPoolExecutor() as threads:
        commands = [[*program, *formatting, file] for file in files]
        list(threads.map(_run, commands))
    pids = [
        processes.start([*program, "kafka.Kafka", file], folder / f"n{i}.log", stack)
        for i, file in enumerate(files)
    ]
    for port in numbers[:3]:
        processes.wait_listening(port, _READY_S)
    return Nodes({"ports": numbers[:3]}, tuple(pids))


def _run(command: Sequence[str | Path]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_READY_S)


def _settings(node: int, ports: list[int], folder: Path) -> str:
    voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(ports[3:]))
    plain, control = ports[node], ports[3 + node]
    return f"""
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain}
controller.listener.names=CONTROLLER
log.dirs={folder}/n{node}
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
"""


# Until Java has compiled what runs often, a message takes ten times as long.
FLUSHED = System(
    "kafka", _start, partial(Kafka, flushed=True), streams=True, warm_s=15.0
)
UNFLUSHED = System(
    "kafka", _start, partial(Kafka, flushed=False), streams=True, warm_s=15.0
)
