"""Workers that do not see what the process that began a job sees."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from braidlog.pipelines import Attempt, Result
from braidlog.pipelines.runners import attempt_of, carry_out

_TESTS = Path(__file__).parents[2]


class Bent:
    """Carries tasks out here, and then something becomes of what they wrote."""

    name = "a worker elsewhere"

    def __init__(self, bend: Callable[[Attempt, Result], Result]) -> None:
        self._bend = bend

    def run(
        self, tasks: Mapping[int, Any], work: Any, blank: Attempt
    ) -> Iterator[tuple[int, Result]]:
        for number, task in tasks.items():
            attempt = attempt_of(blank, number)
            done = replace(carry_out(work, task, attempt), worker="far")
            yield number, self._bend(attempt, done)


class Namespaces:
    """Two worker processes; what is at a path the second one does not see.

    It has a mount namespace of its own, with an empty file system over that path.
    """

    name = "two namespaces"

    def __init__(self, hidden: Path) -> None:
        private = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')
        self._workers = [_started(()), _started((*private, str(hidden)))]

    def run(
        self, tasks: Mapping[int, Any], work: Any, blank: Attempt
    ) -> Iterator[tuple[int, Result]]:
        for number, task in tasks.items():
            attempt = attempt_of(blank, number)
            yield number, self.call(number % 2, carry_out, work, task, attempt)

    def call(self, worker: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function returns in worker 0, which sees all, or 1."""
        return _asked(self._workers[worker], function, arguments)

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.communicate()


def namespaces_or_skip() -> None:
    """Skip where no mount namespace can be made."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no `unshare` to make a mount namespace with")
    tried = subprocess.run(
        ["unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        text=True,
        timeout=20,
    )
    if tried.returncode:
        pytest.skip(f"mount namespaces are not allowed here: {tried.stderr.strip()}")


def _started(before: tuple[str, ...]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*before, sys.executable, "-m", "unit.pipelines.elsewhere"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
        cwd=_TESTS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def _asked(worker: subprocess.Popen[bytes], *call: Any) -> Any:
    assert worker.stdin is not None
    assert worker.stdout is not None
    pickle.dump(call, worker.stdin)
    worker.stdin.flush()
    answer = pickle.load(worker.stdout)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _serve() -> None:
    said = sys.stdout.buffer
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = function(*arguments)
        except Exception as error:
            answer = error
        pickle.dump(answer, said)
        said.flush()


if __name__ == "__main__":
    _serve()
