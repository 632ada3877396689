"""What a piece of work costs all processes of this run: processor time and memory.

Workers of pipelines and Spark with its Python processes are children of this process.
The kernel keeps the peak of each, so looking now and then is enough.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.timing import Figures

_LOOK_S = 0.2
_MIB = 1 << 20
_RESET_PEAK = "5"
"""Written to ``clear_refs``: see proc(5)."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Processor time of a process, in seconds."""

    parent: int
    own: float
    reaped: float
    """Of its children that are gone, and of theirs."""


def family() -> dict[int, Spent]:
    """Return what this process and each below it have taken so far, by number."""
    found = {}
    for process in _family():
        with suppress(psutil.NoSuchProcess):
            user, system, reaped_user, reaped_system, *_ = process.cpu_times()
            reaped = reaped_user + reaped_system
            found[process.pid] = Spent(process.ppid(), user + system, reaped)
    return found


def spent_between(before: Mapping[int, Spent], after: Mapping[int, Spent]) -> float:
    """Return the processor time of a family between two looks at it, in seconds.

    A parent gets the whole time of a child that ends, so what the child had before is
    taken away again. A child that nobody waits for takes its time with it.
    """
    total = 0.0
    for number, now in after.items():
        then = before.get(number, Spent(now.parent, 0.0, 0.0))
        gone = sum(
            each.own + each.reaped
            for child, each in before.items()
            if each.parent == number and child not in after
        )
        total += now.own - then.own + max(0.0, now.reaped - then.reaped - gone)
    return total


def timed(work: Callable[[], int]) -> Figures:
    """Time one call that handles the number of records it returns."""
    before, begin = family(), time.perf_counter()
    records = work()
    seconds = time.perf_counter() - begin
    spent = spent_between(before, family())
    return {
        "seconds": seconds,
        "per_second": records / seconds,
        # The kernel counts in hundredths of a second: less than one is one.
        "per_cpu_second": records / max(spent, 0.01),
        "us_per_record": seconds * 1e6 / records,
    }


@dataclass(slots=True)
class Peaks:
    """Highest resident memory of a single process, mapped files included."""

    worker_mib: float = 0.0
    """Of the Python processes that carry tasks out, of Spark or beside this one."""
    jvm_mib: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)

    def figures(self) -> Figures:
        """Return what was seen; a kind of process that was not there has no figure."""
        found = {"worker_mib": self.worker_mib, "jvm_mib": self.jvm_mib}
        return {name: value for name, value in found.items() if value}


@contextmanager
def peaks(*, spark: bool, ignored: Collection[int] = ()) -> Iterator[Peaks]:
    """Watch the workers of ``spark``, or those that this process starts itself.

    Those of the other kind may be there, idle, and keep what they had.
    """
    seen = Peaks()
    for process in _family():
        with suppress(OSError):
            Path(f"/proc/{process.pid}/clear_refs").write_text(_RESET_PEAK)
    thread = threading.Thread(target=_watch, args=(seen, spark, ignored))
    thread.start()
    try:
        yield seen
    finally:
        seen._stop.set()
        thread.join()


def _watch(seen: Peaks, spark: bool, ignored: Collection[int]) -> None:
    ended = False
    while not ended:
        ended = seen._stop.wait(_LOOK_S)
        _, *below = _family()
        java = [each for each in below if _name(each) == "java"]
        of_spark = {each.pid for jvm in java for each in _below(jvm)}
        workers = [
            each
            for each in below
            if each not in java
            and (each.pid in of_spark) == spark
            and each.pid not in ignored
        ]
        seen.jvm_mib = max([seen.jvm_mib, *map(_peak_mib, java)])
        seen.worker_mib = max([seen.worker_mib, *map(_peak_mib, workers)])


def _peak_mib(process: psutil.Process) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / _MIB
    return 0.0  # It has ended.


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _family() -> list[psutil.Process]:
    this = psutil.Process()
    return [this, *_below(this)]
