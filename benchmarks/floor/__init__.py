"""The physical floor, measured by a small native program without a log in between."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.timing import Figures

METHODS = ("fdatasync", "rwf_dsync", "direct")
SIZES = (128, 4 << 10, 64 << 10, 1 << 20)

_REPOSITORY = Path(__file__).parents[2]
_BUILD = (
    *("cargo", "build", "--release", "--quiet", "--package", "braidlog-core"),
    *("--example", "floor", "--message-format", "json-render-diagnostics"),
)


@dataclass(frozen=True, slots=True)
class Sync:
    """One method at one size; `refused` says why the file system does not take it."""

    method: str
    bytes: int
    p50_us: float = float("nan")
    p99_us: float = float("nan")
    per_second: float = 0.0
    refused: str = ""


@cache
def program() -> Path:
    """Build the floor program once and return where it is."""
    done = subprocess.run(
        _BUILD, cwd=_REPOSITORY, check=True, stdout=subprocess.PIPE, text=True
    )
    built = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
    return Path(next(path for path in reversed(built) if path))


def measure(directory: Path, tasks: Sequence[str]) -> list[dict[str, object]]:
    """Run tasks of the floor program on its file in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [program(), directory / "floor.bin", *tasks],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def syncs(
    directory: Path, sizes: Sequence[int], count: int, methods: Sequence[str] = METHODS
) -> list[Sync]:
    """Measure synchronous block writes of every size by every method."""
    tasks = [f"sync:{method}:{size}:{count}" for size in sizes for method in methods]
    return [_sync(answer) for answer in measure(directory, tasks)]


def _sync(answer: dict[str, object]) -> Sync:
    fields = {name: answer[name] for name in Sync.__slots__ if name in answer}
    return Sync(**fields)  # type: ignore[arg-type]


def fastest(directory: Path, size: int, count: int) -> Figures:
    """Return the figures of the fastest method at one size.

    Each metric is the best of any method, so that nobody is compared with a floor that
    another method would have beaten.
    """
    taken = [each for each in syncs(directory, [size], count) if not each.refused]
    per_second = max(each.per_second for each in taken)
    return {
        "p50_us": min(each.p50_us for each in taken),
        "p99_us": min(each.p99_us for each in taken),
        "per_second": per_second,
        "mb_per_second": per_second * size / 1e6,
    }


def throughput(directory: Path, task: str) -> Figures:
    """Return the rate of `read` (page cache), `memcpy` or `crc32c`."""
    [answer] = measure(directory, [task])
    return {"mb_per_second": float(str(answer["mb_per_second"]))}
