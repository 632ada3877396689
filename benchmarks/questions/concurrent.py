"""How many durable appends a second do 64 concurrent callers get?

Peers take part three ways: one caller groups a record of each of the 64 into one
transaction (no concurrency at all, the best they can do), 64 tasks behind a queue that
commits what has gathered (like for like with our tasks), and 64 threads where the store
has group commit of its own (RocksDB). Threads have a second floor: 64 Python threads
that do nothing but wake one another in turn.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import chain, pairwise
from time import perf_counter, perf_counter_ns

from benchmarks import data, embedded, stores
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.embedded import Embedded
from benchmarks.peers import PEERS, Peer, RocksdbPeer
from benchmarks.peers.queue import CommitQueue
from benchmarks.plan import Plan
from benchmarks.rows import Better, Target
from benchmarks.timing import Figures, summary

NAME = "concurrent"
_TARGET = Target(6)


def contestants(plan: Plan) -> list[Contestant]:
    """Return the floor, ours three ways and every peer."""
    ours = {
        "braidlog tasks": _our_tasks,
        "braidlog threads": _our_threads,
        "braidlog groups": _our_groups,
    }
    grouped = [(_grouped(each), each, _peer_groups) for each in PEERS]
    queued = [(_queued(each), each, _peer_tasks) for each in PEERS]
    return [
        stores.sync_floor(plan, plan.record_bytes, plan.appends),
        Contestant("baton", Kind.FLOOR, lambda _: partial(_baton, plan)),
        *(
            Contestant(name, Kind.OURS, partial(how, plan))
            for name, how in ours.items()
        ),
        *(
            Contestant(name, Kind.PEER, partial(how, plan, kind))
            for name, kind, how in [*grouped, *queued]
        ),
        Contestant("rocksdb threads", Kind.PEER, partial(_peer_threads, plan)),
    ]


def _grouped(peer: type[Peer]) -> str:
    return f"{peer.name} grouped by caller"


def _queued(peer: type[Peer]) -> str:
    return f"{peer.name} tasks"


def _our_tasks(plan: Plan, stack: ExitStack) -> Measure:
    open_async = embedded.api().open_async
    directory = plan.directory / NAME / "tasks"
    directory.mkdir(parents=True, exist_ok=True)
    runner = stack.enter_context(asyncio.Runner())
    keep = contextlib.AsyncExitStack()

    async def start() -> object:
        node = await keep.enter_async_context(open_async(directory / "node"))
        return await node.create_log(embedded.LOG, exist_ok=True)

    log = runner.run(start())
    stack.callback(lambda: runner.run(keep.aclose()))
    return lambda: _tasks(plan, runner, log)


def _tasks(plan: Plan, runner: asyncio.Runner, log: object) -> Figures:
    value = data.value(plan.seed, plan.record_bytes)
    begin = perf_counter()
    took = runner.run(
        embedded.append_from_tasks(log, value, plan.callers, plan.rounds_per_caller)
    )
    return summary(took, perf_counter() - begin)


def _our_threads(plan: Plan, stack: ExitStack) -> Measure:
    store = stores.opened(Embedded, plan.directory / NAME / "threads", stack)
    return _threads(plan, store.log.append, stack)


def _peer_threads(plan: Plan, stack: ExitStack) -> Measure:
    directory = plan.directory / NAME / "rocksdb-threads"
    return _threads(
        plan, stores.opened(RocksdbPeer, directory, stack).append_one, stack
    )


def _threads(
    plan: Plan, append: Callable[[bytes], object], stack: ExitStack
) -> Measure:
    value = data.value(plan.seed, plan.record_bytes)
    pool = stack.enter_context(ThreadPoolExecutor(plan.callers))

    def caller(_: int) -> list[float]:
        marks = [perf_counter_ns()]
        for _ in range(plan.rounds_per_caller):
            append(value)
            marks.append(perf_counter_ns())
        return [(after - before) / 1e3 for before, after in pairwise(marks)]

    def measure() -> Figures:
        begin = perf_counter()
        took = list(chain.from_iterable(pool.map(caller, range(plan.callers))))
        return summary(took, perf_counter() - begin)

    return measure


def _baton(plan: Plan) -> Figures:
    """Let each thread wake the next; every append of a thread costs such a wake-up."""
    locks = [threading.Lock() for _ in range(plan.callers)]
    for lock in locks:
        lock.acquire()

    def caller(own: threading.Lock, following: threading.Lock) -> None:
        for _ in range(plan.rounds_per_caller):
            own.acquire()
            following.release()

    ring = zip(locks, [*locks[1:], locks[0]], strict=True)
    threads = [threading.Thread(target=caller, args=pair) for pair in ring]
    for thread in threads:
        thread.start()
    begin = perf_counter()
    locks[0].release()
    for thread in threads:
        thread.join()
    return {
        "per_second": plan.callers * plan.rounds_per_caller / (perf_counter() - begin)
    }


def _our_groups(plan: Plan, stack: ExitStack) -> Measure:
    store = stores.opened(Embedded, plan.directory / NAME / "groups", stack)
    return partial(_groups, plan, store)


def _peer_groups(plan: Plan, kind: type[Peer], stack: ExitStack) -> Measure:
    directory = plan.directory / NAME / f"{kind.name}-groups"
    return partial(_groups, plan, stores.opened(kind, directory, stack))


def _groups(plan: Plan, store: Peer | Embedded) -> Figures:
    values = [data.value(plan.seed, plan.record_bytes)] * plan.callers
    took = []
    begin = perf_counter()
    for _ in range(plan.rounds_per_caller):
        before = perf_counter_ns()
        store.append_group(values)
        took += [(perf_counter_ns() - before) / 1e3] * plan.callers
    return summary(took, perf_counter() - begin)


def _peer_tasks(plan: Plan, kind: type[Peer], stack: ExitStack) -> Measure:
    directory = plan.directory / NAME / f"{kind.name}-tasks"
    queue = CommitQueue(stores.opened(kind, directory, stack))
    stack.callback(queue.close)
    runner = stack.enter_context(asyncio.Runner())
    return lambda: _tasks(plan, runner, queue)


def comparisons(plan: Plan) -> list[Comparison]:
    """Return the rates; the strict comparison first, like for like after."""
    grouped = [_grouped(each) for each in PEERS]
    queued = [_queued(each) for each in PEERS]
    threads = ["rocksdb threads"]
    any_way = [*grouped, *queued, *threads]
    alike = "peers serve as many callers too"
    rows = [
        ("tasks", "braidlog tasks", _TARGET, "floor", any_way, "peers any way"),
        ("threads", "braidlog threads", _TARGET, "floor", any_way, "peers any way"),
        ("tasks, alike", "braidlog tasks", None, "floor", queued, alike),
        ("threads, alike", "braidlog threads", None, "floor", threads, alike),
        ("threads", "braidlog threads", None, "baton", [], "floor: wake-ups alone"),
        ("a call", "braidlog groups", None, "floor", grouped, "one caller groups"),
    ]
    return [
        Comparison(
            f"{plan.callers} {what}, {plan.record_bytes} B",
            "per_second",
            "/s",
            better=Better.HIGHER,
            ours=ours,
            target=target,
            floor=floor,
            peers=peers,
            note=note,
        )
        for what, ours, target, floor, peers, note in rows
    ]
