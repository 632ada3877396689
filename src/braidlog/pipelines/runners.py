"""Where tasks are carried out: this process, processes beside it, or Spark.

All three call the same ``work``. Spark gets descriptors only: one partition of
``spark.range`` is one task, what comes back is its result as JSON, and no record goes
through the JVM. Tasks go to Spark in waves, two of them at a time, so that results are
noted while the job runs and a slow task of one wave holds up no other.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import secrets
import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from braidlog.errors import InvalidArgumentError, LogError, UnavailableError
from braidlog.handover import check_landmarks, here, identify_imports
from braidlog.pipelines.job import Attempt, Result, Runner, Work
from braidlog.store.threads import no_thread

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")

_WAVES: Final = 2
_WAVE_TASKS_PER_SLOT: Final = 4
_AHEAD_PER_WORKER: Final = 2
"""Tasks that are handed to a pool before they can begin, so that it never waits."""


def runner_of(spark: SparkSession | None, workers: int | None) -> Runner:
    """Return the runner that was asked for.

    Raises:
        InvalidArgumentError: both were, or less than one worker.
    """
    if spark is not None:
        if workers is not None:
            msg = "workers are processes on this machine: leave it out with Spark"
            raise InvalidArgumentError(msg)
        return SparkRunner(spark)
    if workers is not None and workers < 1:
        raise InvalidArgumentError(f"workers must be at least 1, not {workers}")
    count = len(os.sched_getaffinity(0)) if workers is None else workers
    return LocalRunner() if count == 1 else PoolRunner(count)


def attempt_of(blank: Attempt, task: int) -> Attempt:
    """Return an attempt at a task, under a name that no other one has."""
    name = f"{blank.name}-{task:05}-{secrets.token_hex(6)}"
    return replace(blank, task=task, name=name)


def carry_out(work: Work[T], task: T, attempt: Attempt) -> Result:
    """Carry one task out in this process, which may be on any machine.

    Raises:
        NotSharedError: this process does not see a directory of the job.
        LogError: what the task raised.
    """
    check_landmarks(attempt.landmarks)
    return replace(work(task, attempt), worker=here())


class LocalRunner:
    """One task after the other, in this process."""

    name = "this process"

    def run(
        self, tasks: Mapping[int, T], work: Work[T], blank: Attempt
    ) -> Iterator[tuple[int, Result]]:
        """Carry tasks out."""
        for number, task in tasks.items():
            yield number, carry_out(work, task, attempt_of(blank, number))


class PoolRunner:
    """Processes of this machine."""

    def __init__(self, workers: int) -> None:
        """Name how many; they are started when there are tasks."""
        self.name = f"{workers} processes"
        self._workers = workers

    def run(
        self, tasks: Mapping[int, T], work: Work[T], blank: Attempt
    ) -> Iterator[tuple[int, Result]]:
        """Carry tasks out; a single one in this process."""
        workers = min(self._workers, len(tasks))
        if workers == 1:
            yield from LocalRunner().run(tasks, work, blank)
            return
        # Not forked: this process may have threads of the core.
        context = multiprocessing.get_context("spawn")
        others = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(workers, context, initializer=_leave_interrupts)
        try:
            yield from self._run(pool, workers, tasks, work, blank)
        except BrokenProcessPool as error:
            msg = "a worker process died; if memory was short, run fewer workers"
            raise UnavailableError(msg) from error
        except BaseException:
            # Tasks may take long, and what they have not returned does not count.
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _run(
        self,
        pool: ProcessPoolExecutor,
        workers: int,
        tasks: Mapping[int, T],
        work: Work[T],
        blank: Attempt,
    ) -> Iterator[tuple[int, Result]]:
        left = iter(tasks.items())
        running: dict[Future[Result], int] = {}
        while True:
            while len(running) < workers * _AHEAD_PER_WORKER:
                number, task = next(left, (-1, None))
                if number < 0:
                    break
                attempt = attempt_of(blank, number)
                future = pool.submit(carry_out, work, task, attempt)  # type: ignore[arg-type]
                running[future] = number
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number = running.pop(future)
                yield number, future.result()


def _leave_interrupts() -> None:
    """Let an interrupt at the terminal be handled by the process that began this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def context_of(spark: SparkSession) -> Any:
    """Return the context of a session: pipelines run jobs in threads of its driver.

    Raises:
        InvalidArgumentError: it has none, because Spark Connect is between.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise InvalidArgumentError(
            "pipelines cannot run over Spark Connect, because its client has no driver:"
            " run them on a machine of the cluster with a classic session"
            " (SparkSession.builder.master(...)), or without Spark by passing `workers`"
        )
    return spark.sparkContext


class SparkRunner:
    """The workers of a Spark session, whatever its master is."""

    def __init__(self, spark: SparkSession) -> None:
        """Take a session, which stays the caller's.

        Raises:
            InvalidArgumentError: it is one of Spark Connect.
        """
        context = context_of(spark)
        self._spark = spark
        self.name = f"Spark {spark.version} at {context.master}"
        self._slots = int(context.defaultParallelism)
        self._failures_max = _failures_max(spark)

    def run(
        self, tasks: Mapping[int, T], work: Work[T], blank: Attempt
    ) -> Iterator[tuple[int, Result]]:
        """Carry tasks out, in waves."""
        left = iter(tasks.items())
        size = self._slots * _WAVE_TASKS_PER_SLOT
        pool = ThreadPoolExecutor(_WAVES, thread_name_prefix="braidlog-wave")
        running: set[Future[list[tuple[int, Result]]]] = set()
        tag = f"braidlog-{secrets.token_hex(6)}"
        try:
            while wave := list(islice(left, size)):
                try:
                    running.add(pool.submit(self._wave, wave, work, blank, tag))
                except RuntimeError as error:
                    raise no_thread("for a wave of tasks", error) from error
                if len(running) >= _WAVES:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield from future.result()
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield from future.result()
        except BaseException:
            self._spark.interruptTag(tag)
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _wave(
        self, tasks: list[tuple[int, T]], work: Work[T], blank: Attempt, tag: str
    ) -> list[tuple[int, Result]]:
        self._spark.addTag(tag)  # Of what this thread begins.
        in_worker = partial(_in_worker, tasks, work, blank, self._failures_max)
        rows = (
            self._spark.range(0, len(tasks), 1, len(tasks))
            .mapInArrow(in_worker, "task bigint, result binary, failure binary")
            .collect()
        )
        for row in rows:
            if row.failure is not None:
                raise pickle.loads(row.failure)  # noqa: S301, RUF100
        return [
            (row.task, msgspec.json.decode(bytes(row.result), type=Result))
            for row in rows
        ]


def _in_worker(
    tasks: list[tuple[int, T]],
    work: Work[T],
    blank: Attempt,
    failures_max: int,
    rows: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Carry out the tasks that the rows name; runs in a worker of Spark."""
    import pyarrow as pa

    for batch in rows:
        for index in batch.column(0).to_pylist():
            number, task = tasks[index]
            result = failure = None
            try:
                with identify_imports():
                    done = carry_out(work, task, attempt_of(blank, number))
                result = msgspec.json.encode(done)
            except LogError as error:
                # One that may pass is Spark's to retry, while it does.
                if error.retryable and _attempts() < failures_max:
                    raise
                failure = pickle.dumps(error)
            except ImportError as error:
                # A worker does not get the package by trying again.
                failure = pickle.dumps(error)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([number], pa.int64()),
                    pa.array([result], pa.binary()),
                    pa.array([failure], pa.binary()),
                ],
                ["task", "result", "failure"],
            )


def _attempts() -> int:
    """Return how often Spark began the task that runs here."""
    from pyspark import TaskContext

    context: Any = TaskContext.get()
    return 1 if context is None else context.attemptNumber() + 1


def _failures_max(spark: SparkSession) -> int:
    """Return how often Spark begins a task: a local master has a rule of its own.

    The context says what is running; settings of a session may name another master.
    """
    context = spark.sparkContext
    master = str(context.master)
    if master.startswith("local["):
        _, _, failures = master.rstrip("]").partition(",")
        return int(failures) if failures.strip().isdecimal() else 1
    if master == "local":
        return 1
    return int(str(context.getConf().get("spark.task.maxFailures", "4")))
