"""Kill tasks, workers and drivers of a query from log to log; each record has to be
there once, and in the order of its key.

    PYTHONPATH=tests python -m tests.spark.exactly_once --rounds 50 [--hosts 2]
        [--minutes 30]

A round appends records to the log `in`, lets the query run, and after a while kills its
driver with everything below it, or some of its Python workers; some of those store a
batch at that time. Tasks of the query fail, die and stand still by themselves. With
`--hosts` the tasks run in so many Spark workers with addresses of their own, and
speculation is on: Spark starts a task a second time on another host only. At the end
the query runs undisturbed to the end of `in`, and `out` is compared with `in`.

Prints its seed; `--seed` repeats its choices, not the moments.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import pyarrow as pa
import pyarrow.compute as pc

import braidlog
from braidlog.spark.sink.ledger.ledger import open_ledger

KEYS: Final = 7
PER_ROUND: Final = 400
_PREFIX: Final = b"out:"
_SETTINGS: Final = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.task.maxFailures": "20",
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
    # Of stages with one task too.
    "spark.speculation.task.duration.threshold": "1s",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    "spark.excludeOnFailure.enabled": "false",
}
# What becomes of a task, of a thousand.
_RAISES, _DIES, _STANDS = 60, 30, 60
_STANDS_S: Final = 4.0
# Otherwise while the query starts, or finds out where it was.
_AFTER_PROGRESS: Final = 0.7
_PROGRESS_S: Final = 120.0
_START_S: Final = 240.0
_END_S: Final = 900.0


@dataclass
class Report:
    """What a run did, and what came of it."""

    seed: int
    rounds: int = 0
    records: int = 0
    done: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    seconds: float = 0.0


# -- the query ------------------------------------------------------------------------


def disturbed(batches: Iterable[Any]) -> Iterator[Any]:
    """Prefix each value; fail, die or stand still now and then."""
    dice = random.SystemRandom().randrange(1000)
    if dice < _RAISES:
        raise RuntimeError("this task fails")
    for batch in batches:
        if _RAISES <= dice < _RAISES + _DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        if _RAISES + _DIES <= dice < _RAISES + _DIES + _STANDS:
            time.sleep(_STANDS_S)
            dice = 0
        yield transformed(batch)


def undisturbed(batches: Iterable[Any]) -> Iterator[Any]:
    """Prefix each value."""
    return map(transformed, batches)


def transformed(batch: Any) -> Any:
    """Prefix each value."""
    prefix = pa.scalar(_PREFIX, pa.binary())
    value = pc.binary_join_element_wise(
        prefix, batch.column("value"), pa.scalar(b"", pa.binary())
    )
    return pa.RecordBatch.from_arrays([batch.column("key"), value], ["key", "value"])


def copying(session: Any, folder: Path, change: Callable[..., Any]) -> Any:
    """Return the query from `in` to `out`, not started."""
    from braidlog.spark import register

    register(session)
    source = (
        session.readStream.format("braidlog")
        .schema("key binary, value binary")
        .options(path=str(folder / "in"), log="in", bytesPerPartition="4k")
        .option("maxRecordsPerTrigger", PER_ROUND // 4)
        .load()
    )
    return (
        source.mapInArrow(change, "key binary, value binary")
        .writeStream.format("braidlog")
        .options(path=str(folder / "out"), log="out")
        .option("checkpointLocation", str(folder / "checkpoint"))
    )


def drive(folder: Path, master: str) -> None:
    """Run the query until the file `stop` is there and everything is stored."""
    from braidlog.spark import local_session

    events = folder / "events"
    events.mkdir(exist_ok=True)
    told = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
    session = local_session(
        "exactly once",
        master=master,
        settings=_SETTINGS | told,
        scratch=folder / "scratch",
    )
    query = copying(session, folder, disturbed).start()
    (folder / "started").touch()
    while not (folder / "stop").exists():
        if query.awaitTermination(1):
            break
    query.processAllAvailable()
    query.stop()
    session.stop()


# -- the one who kills ----------------------------------------------------------------


class Driver:
    """The process that drives the query, and everything below it."""

    def __init__(self, folder: Path, master: str) -> None:
        """Start it and wait until the query runs."""
        self._started = folder / "started"
        self._started.unlink(missing_ok=True)
        self._errors = (folder / "driver.log").open("ab")
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                __spec__.name,
                "--drive",
                folder,
                "--master",
                master,
            ],
            stdout=self._errors,
            stderr=self._errors,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        deadline = time.monotonic() + _START_S
        while not self._started.exists() and self.alive:
            assert time.monotonic() < deadline, f"no query yet, see {folder}"
            time.sleep(0.05)

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def workers(self) -> list[psutil.Process]:
        """Return the Python processes below it that run tasks and commits."""
        return python_below(self._process.pid)

    def wait_for_progress(self, folder: Path, limit_s: float = _PROGRESS_S) -> None:
        """Wait until it has stored a batch, or long enough."""
        before, deadline = committed(folder), time.monotonic() + limit_s
        while self.alive and committed(folder) == before:
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it with everything below it."""
        # It goes no further while the processes below it are looked for.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGSTOP)
        with contextlib.suppress(psutil.Error):
            below = psutil.Process(self._process.pid).children(recursive=True)
            for each in below:
                with contextlib.suppress(psutil.Error):
                    each.kill()
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def wait(self) -> int:
        """Wait until it ends by itself."""
        status = self._process.wait(_END_S)
        self._errors.close()
        return status


def committed(folder: Path) -> int:
    """Return how many batches Spark takes as committed."""
    return len([*(folder / "checkpoint" / "commits").glob("[0-9]*")])


def python_below(pid: int) -> list[psutil.Process]:
    """Return the Python processes that Spark has started below a process."""
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(pid).children(recursive=True)
        return [each for each in below if _is_python(each)]
    return []


def _is_python(process: psutil.Process) -> bool:
    try:
        return "pyspark" in " ".join(process.cmdline()) and "java" not in process.name()
    except psutil.Error:
        return False


@contextlib.contextmanager
def hosts(count: int, folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Start a master and workers with addresses of their own.

    Yields the URL of the master and the process ids.
    """
    if not count:
        yield "local[2,20]", []
        return
    import pyspark

    home = Path(pyspark.__file__).parent
    prefix = "org.apache.spark.deploy"
    url = "spark://127.0.0.1:17077"
    master = ["master.Master", "--host", "127.0.0.1", "--port", "17077"]
    commands = [[*master, "--webui-port", "0"]]
    for number in range(2, 2 + count):
        where = ["--host", f"127.0.0.{number}", "--webui-port", "0", "--cores", "2"]
        work = ["--memory", "1g", "--work-dir", str(folder / f"work{number}")]
        commands.append(["worker.Worker", *where, *work, url])
    processes = []
    try:
        for kind, *arguments in commands:
            address = arguments[arguments.index("--host") + 1]
            environment = {
                **os.environ,
                "SPARK_LOCAL_IP": address,
                "SPARK_HOME": str(home),
                "PYSPARK_PYTHON": sys.executable,
            }
            with (folder / "hosts.log").open("ab") as errors:
                processes.append(
                    subprocess.Popen(
                        [home / "bin" / "spark-class", f"{prefix}.{kind}", *arguments],
                        env=environment,
                        stdout=errors,
                        stderr=errors,
                    )
                )
            time.sleep(3)  # A worker gives up if there is no master.
        yield url, [process.pid for process in processes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def prepare(folder: Path) -> None:
    """Make the logs, with the first records."""
    with braidlog.open(folder / "out", segment_bytes=4 << 20) as node:
        node.create_log("out")
    feed(folder, 0, PER_ROUND)


def feed(folder: Path, begin: int, count: int) -> None:
    """Append numbers, each with one of a few keys."""
    with braidlog.open(folder / "in") as node:
        log = node.create_log("in", exist_ok=True)
        numbers = range(begin, begin + count)
        log.append_many(
            [b"%d" % number for number in numbers],
            keys=[b"k%d" % (number % KEYS) for number in numbers],
        )


def verify(folder: Path, records: int, *, speculates: bool) -> int:
    """Compare `out` with what was appended to `in`; return the batches stored."""
    found: dict[bytes | None, list[int]] = {}
    with braidlog.open(folder / "out") as node:
        for record in node.log("out").read():
            assert record.value.startswith(_PREFIX), record
            found.setdefault(record.key, []).append(int(record.value[len(_PREFIX) :]))
        ledger = open_ledger(node, "out").read()
    for key in range(KEYS):
        wanted = list(range(key, records, KEYS))
        have = found.get(b"k%d" % key, [])
        if have != wanted:
            twice = [number for number, n in Counter(have).items() if n > 1]
            missing = sorted(set(wanted) - set(have))
            raise AssertionError(
                f"key k{key}: {len(have)} records for {len(wanted)}; "
                f"twice {twice[:9]}, missing {missing[:9]}, "
                f"in order: {have == sorted(have)}"
            )
    (query,) = ledger.queries.values()
    assert query.done
    left = [path for path in (folder / "out" / "staging").rglob("*") if path.is_file()]
    # A task that Spark gave up may go on, until the next batch tidies up behind it.
    assert speculates or not left, f"what is staged is not removed: {left}"
    return query.batch + 1


def second_copies(folder: Path) -> int:
    """Return how many tasks Spark started while another copy of them still ran."""
    return sum(
        '"Event":"SparkListenerTaskStart"' in line and '"Speculative":true' in line
        for path in (folder / "events").iterdir()
        for line in path.read_text(errors="replace").splitlines()
    )


def kill_in_a_batch(folder: Path) -> None:
    """Run the query until it has stored a batch; kill its driver as it stores another.

    It dies with records in `out` that Spark does not know to be there.
    """
    driver = Driver(folder, "local[2,20]")
    try:
        driver.wait_for_progress(folder, _START_S)
        deadline = time.monotonic() + _PROGRESS_S
        with braidlog.open(folder / "out", read_only=True) as node:
            out = node.log("out")
            before = out.end
            while driver.alive and out.end == before:
                assert time.monotonic() < deadline, f"no further batch, see {folder}"
                time.sleep(0.001)
        assert driver.alive, f"it ended by itself, see {folder}"
    finally:
        driver.kill()


def run(
    folder: Path,
    rounds: int,
    seed: int,
    host_count: int = 0,
    minutes: float = math.inf,
) -> Report:
    """Run rounds in a directory, as long as there is time; verify what came of them."""
    choice, report, begin = random.Random(seed), Report(seed), time.monotonic()
    prepare(folder)
    report.records = PER_ROUND
    driver: Driver | None = None
    try:
        with hosts(host_count, folder) as (master, pids):
            while report.rounds < rounds and time.monotonic() - begin < 60 * minutes:
                report.rounds += 1
                if driver is None or not driver.alive:
                    report.done["drivers started"] += 1
                    driver = Driver(folder, master)
                feed(folder, report.records, PER_ROUND)
                report.records += PER_ROUND
                if choice.random() < _AFTER_PROGRESS:
                    driver.wait_for_progress(folder)
                time.sleep(choice.uniform(0.1, 2.0))
                if choice.random() < 0.35:
                    driver.kill()
                    report.done["drivers killed"] += 1
                    driver = None
                    continue
                workers = driver.workers()
                workers += [each for pid in pids for each in python_below(pid)]
                chosen = choice.sample(
                    workers, min(len(workers), choice.choice((1, 2)))
                )
                for victim in chosen:
                    with contextlib.suppress(psutil.Error):
                        victim.kill()
                        report.done["workers killed"] += 1
            (folder / "stop").touch()
            while driver is None or driver.wait() != 0:
                # A driver ends if its commit was killed, or a task failed too often.
                report.done["drivers started"] += 1
                assert report.done["drivers started"] < 3 * report.rounds + 20
                driver = Driver(folder, master)
    finally:
        if driver is not None and driver.alive:
            driver.kill()
    report.done["tasks started a second time"] = second_copies(folder)
    report.batches = verify(folder, report.records, speculates=bool(host_count))
    report.seconds = round(time.monotonic() - begin, 1)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--hosts", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="directory to work in and leave")
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--master", default="local[2,20]", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive is not None:
        drive(options.drive, options.master)
        return
    sys.stdout.write(f"seed {options.seed}\n")
    sys.stdout.flush()
    with contextlib.ExitStack() as stack:
        folder = options.keep
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        report = run(
            folder, options.rounds, options.seed, options.hosts, options.minutes
        )
    sys.stdout.write(json.dumps(vars(report), indent=2) + "\n")


if __name__ == "__main__":
    main()
