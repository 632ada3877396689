"""What a piece of work costs all processes of this run: processor time and memory.

Workers of pipelines and Spark with its Python processes are children of this process.
The kernel keeps the peak of each, so looking now and then is enough.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.timing import Figures

_LOOK_S = 0.2
_MIB = 1 << 20
_RESET_PEAK = "5"
"""Written to ``clear_refs``: see proc(5)."""


def processor_seconds() -> float:
    """Return what this process and all below it have taken so far."""
    total = 0.0
    for process in _family():
        with suppress(psutil.NoSuchProcess):
            # Of children that are gone the parent has the times.
            total += sum(process.cpu_times()[:4])
    return total


def timed(work: Callable[[], int]) -> Figures:
    """Time one call that handles the number of records it returns."""
    before, begin = processor_seconds(), time.perf_counter()
    records = work()
    seconds = time.perf_counter() - begin
    spent = processor_seconds() - before
    return {
        "seconds": seconds,
        "per_second": records / seconds,
        "per_cpu_second": records / spent,
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
