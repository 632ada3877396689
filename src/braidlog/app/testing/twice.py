"""Finds what a procedure takes from outside: it is run twice, as differently as can be.

For tests of applications::

    from braidlog.app.testing import run_twice

    def test_my_procedures_repeat():
        run_twice("my_module:bank", [("deposit", 1, 10), ("transfer", 1, 2, 5)])

The first run executes all calls in one process. The second one has another hash seed,
time zone, locale, allocator, garbage collector, clock and working directory, and goes
on in a new process after each part, so that nothing survives in memory. Both have the
same log. Outcomes and states have to be the same.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from braidlog.app.determinism.code_hash import content_hash
from braidlog.app.determinism.codec import decode, encode
from braidlog.app.execution.definition import ApplicationDefinition
from braidlog.app.execution.entries import CallId, Command, Create, Entry, pack
from braidlog.app.execution.executor import Executor
from braidlog.app.execution.outcome import Outcome, Status, difference
from braidlog.app.procedure import bind
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import InvalidArgumentError

_BEGIN_US: Final = 1_700_000_000_000_000
_PARTS: Final = 3
_TIMEOUT_S: Final = 120
# What differs between the runs, beside the clock and where objects lie in memory.
_ONE: Final = {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C", "LANG": "C"}
_OTHER: Final = {
    "PYTHONHASHSEED": "4242",
    "TZ": "XYZ-13:45",
    "LC_ALL": "C.UTF-8",
    "LANG": "tr_TR.UTF-8",
    "PYTHONMALLOC": "malloc",
    "HOME": "/nonexistent",
    "USER": "somebody",
}


class NotRepeatedError(AssertionError):
    """The second run gave something else; ``component`` says what."""

    def __init__(self, message: str, *, procedure: str, component: str) -> None:
        """Name the procedure, if it was one, and what differs."""
        super().__init__(message)
        self.procedure = procedure
        self.component = component

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive a pickle, as where tests run in processes of a pool."""
        return partial(type(self), **self.__dict__), self.args


@dataclass(frozen=True, slots=True)
class TwoRuns:
    """What both runs gave."""

    statuses: list[str]
    """``ok``, or the type of what was raised; of each call."""
    hashes: list[bytes]
    """State hash of each partition."""


def run_twice(
    application: str, calls: Iterable[Sequence[Any]], *, timeout_s: float = _TIMEOUT_S
) -> TwoRuns:
    """Execute the same calls in two runs of separate processes, and compare the runs.

    The runs differ in hash seed, time zone, locale, clock and memory, so a procedure
    that depends on one of these is found. ``application`` is ``module:name`` of an
    `Application`, or of a function that returns one. Each of ``calls`` is the name of a
    procedure, followed by its arguments.

    Raises:
        NotRepeatedError: an outcome, a state, or a constant of the program differs.
        InvalidArgumentError: a run failed; the message has its output.
        subprocess.TimeoutExpired: a run took longer than ``timeout_s`` seconds.
    """
    listed = [list(call) for call in calls]
    cuts = [len(listed) * part // _PARTS for part in range(_PARTS + 1)]
    with tempfile.TemporaryDirectory() as directory:
        where = Path(directory)
        whole = [(0, len(listed))]
        parts = list(itertools.pairwise(cuts))
        one = _run(where / "one", application, listed, whole, _ONE, timeout_s)
        other = _run(where / "other", application, listed, parts, _OTHER, timeout_s)
    _compare(listed, one, other)
    return TwoRuns([status for status, _ in one["outcomes"]], one["hashes"])


def _compare(calls: list[list[Any]], one: Any, other: Any) -> None:
    pairs = zip(calls, one["outcomes"], other["outcomes"], strict=True)
    for number, (call, mine, its) in enumerate(pairs):
        component = difference(mine[1], its[1])
        if component is not None or mine != its:
            component = component or "status"
            msg = (
                f"call {number} ({call[0]}{tuple(call[1:])}) gave a different "
                f"{component}: {mine[0]} and {its[0]}"
            )
            raise NotRepeatedError(msg, procedure=call[0], component=component)
    for number, hashes in enumerate(zip(one["hashes"], other["hashes"], strict=True)):
        if len(set(hashes)) > 1:
            msg = f"partition {number} has different content"
            raise NotRepeatedError(msg, procedure="", component="state")
    changed = sorted({*one["changed"], *other["changed"]})
    if changed:
        msg = f"something that {changed[0]} uses was changed in memory"
        raise NotRepeatedError(msg, procedure=changed[0], component="memory")


# -- runs ----------------------------------------------------------------------------


def _run(
    where: Path,
    application: str,
    calls: list[list[Any]],
    parts: list[tuple[int, int]],
    variables: dict[str, str],
    timeout_s: float,
) -> dict[str, Any]:
    where.mkdir()
    found: dict[str, Any] = {"outcomes": [], "hashes": [], "changed": []}
    for begin, end in parts:
        work = [application, calls, begin, end, os.fspath(where), variables == _OTHER]
        (where / "work").write_bytes(encode(work))
        done = subprocess.run(
            [sys.executable, "-m", __name__, os.fspath(where)],
            env=os.environ | {"PYTHONPATH": _path()} | variables,
            cwd=where if variables == _OTHER else None,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            msg = f"a run of {application} ended with {done.returncode}:\n{done.stderr}"
            raise InvalidArgumentError(msg)
        result = decode((where / "result").read_bytes())
        found["outcomes"] += result["outcomes"]
        found["changed"] += result["changed"]
        found["hashes"] = result["hashes"]
    return found


def _path() -> str:
    entries = ["", *sys.path]  # The first is the working directory.
    return os.pathsep.join(os.path.abspath(entry) for entry in entries)  # noqa: PTH100


def _child(where: Path) -> None:
    """Execute a part of the calls in this process."""
    name, calls, begin, end, directory, other = decode((where / "work").read_bytes())
    if other:
        gc.set_threshold(1, 1, 1)
        clock = time.time
        time.time = lambda: clock() / 2
    application = _load(name)
    state = SqliteState(Path(directory) / "state", application.partitions)
    executor = Executor(application, state)
    records = list(_records(application, calls))
    outcomes: list[Outcome] = []
    for number, (position, timestamp, value) in enumerate(records):
        # The first records are no calls; what is there from the last part is skipped.
        if position <= executor.position:
            continue
        if number - (len(records) - len(calls)) >= end:
            break
        outcome = executor.apply(position, timestamp, value)
        if outcome is not None:
            outcomes.append(outcome)
    executor.commit(everywhere=True)
    hashes = []
    for partition in state.partitions:
        view = partition.view()
        hashes.append(view.hash())
        view.close()
    state.close()
    result = {
        "outcomes": [[_status(outcome), outcome.digest] for outcome in outcomes],
        "hashes": hashes,
        "changed": _changed(application),
    }
    assert len(outcomes) == end - begin
    (where / "result").write_bytes(encode(result))


def _load(name: str) -> ApplicationDefinition:
    module, _, attribute = name.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    application = found if isinstance(found, ApplicationDefinition) else found()
    if not isinstance(application, ApplicationDefinition):
        msg = f"{name!r} is neither an application nor a function that returns one"
        raise InvalidArgumentError(msg)
    return application


def _records(
    application: ApplicationDefinition, calls: list[list[Any]]
) -> Iterator[tuple[int, int, bytes]]:
    entries: list[Entry] = [
        Create(
            b"run-twice-------",
            application.name,
            application.partitions,
            application.results_kept,
        ),
        application.catalog(1),
    ]
    for number, (name, *arguments) in enumerate(calls):
        entries.append(_command(application, number, name, arguments))
    for position, entry in enumerate(entries, 1):
        yield position, _BEGIN_US + position * 1000, pack(entry)


def _command(
    application: ApplicationDefinition, number: int, name: str, arguments: list[Any]
) -> Command:
    procedure = application.find(name)
    if procedure.mode != "command":
        msg = f"{name!r} is {procedure.mode}, so replay does not call it"
        raise InvalidArgumentError(msg)
    bound = bind(procedure, tuple(arguments), {})
    entropy = blake2b(number.to_bytes(8, "big"), digest_size=16).digest()
    call = CallId.make(number + 1, entropy[:9])
    touched = procedure.partitions(bound, application.partitions)
    return Command(call, entropy, name, procedure.content, touched, bound)


def _status(outcome: Outcome) -> str:
    if outcome.status in (Status.ABORTED, Status.FAILED):
        kind, *_ = decode(outcome.body)
        return str(kind)
    return outcome.status.name.lower()


def _changed(application: ApplicationDefinition) -> list[str]:
    """Return the procedures that use something that is not what it was."""
    return [
        procedure.name
        for procedure in application.procedures()
        if procedure.mode == "command"
        and content_hash(procedure.function) != procedure.content
    ]


if __name__ == "__main__":
    _child(Path(sys.argv[1]))
