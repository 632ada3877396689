"""Programs that are started for a measurement, and ended by their number."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from benchmarks.contest import Unavailable
from braidlog.testing.ports import Reservation

_FOLDERS = ("", "usr/bin", "usr/sbin", "bin")
_READY_S = 20.0
_STOP_S = 10.0


def find(name: str, folder: Path | None) -> Path:
    """Return a program, from the folder or else from PATH.

    Raises:
        Unavailable: it is in neither.
    """
    if folder is not None:
        for part in _FOLDERS:
            if (folder / part / name).is_file():
                return folder / part / name
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} is not installed (make peers)")
    return Path(found)


_PORTS = Reservation()


def ports(count: int) -> list[int]:
    """Return ports that nobody else gets while this process lives."""
    return _PORTS.choose(count)


def wait_listening(port: int, within_s: float = _READY_S) -> None:
    """Wait until somebody takes connections at a port.

    Raises:
        TimeoutError: nobody does.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody listens at port {port}") from None
            time.sleep(0.02)
        else:
            return


def start(command: Sequence[str | Path], output: Path, stack: ExitStack) -> int:
    """Start a program and return its number; it is ended when the stack closes."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("ab") as file:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    stack.callback(_end, process)
    return process.pid


def prioritize(nice: int) -> None:
    """Give this process and all that it started a share against others of the machine.

    Each of them is a session, and the scheduler groups by session: the nice value of a
    process says nothing outside of its own.
    """
    measured = psutil.Process()
    for each in [measured, *measured.children(recursive=True)]:
        Path(f"/proc/{each.pid}/autogroup").write_text(str(nice))


def spent_us(pids: Iterable[int]) -> dict[int, float]:
    """Return the processor time of each process so far, in microseconds.

    As the scheduler counts it, by thread: the times of `proc_pid_stat(5)` have steps of
    10 ms, in which nodes take thousands of appends. A thread that ended is not counted.
    """
    return {pid: sum(_threads_ns(pid)) / 1e3 for pid in pids}


def written(pids: Iterable[int]) -> int:
    """Return how many bytes processes have had written to a disk so far."""
    total = 0
    for pid in pids:
        fields = (Path("/proc") / str(pid) / "io").read_text().split()
        total += int(fields[fields.index("write_bytes:") + 1])
    return total


def _threads_ns(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # It has just ended.
            yield int((thread / "schedstat").read_text().split()[0])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
