"""What a result depends on: machine, file system, versions, revision, parameters."""

import platform
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

_PACKAGES = ("braidlog", "rocksdict", "lmdb", "pyarrow", "numpy")
_MEASURED = (":/", ":(exclude,top)*.md", ":(exclude,top)benchmarks/record/*.jsonl")


def describe(directory: Path, parameters: str) -> dict[str, str]:
    """Return the header of a result, in printing order."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": f"{_cpu()}, {psutil.cpu_count()} logical",
        "memory": f"{psutil.virtual_memory().total / (1 << 30):.0f} GiB",
        "load": " ".join(f"{load:.2f}" for load in psutil.getloadavg()),
        "kernel": platform.release(),
        "file system": _file_system(directory),
        "python": platform.python_version(),
        "packages": _packages(),
        "revision": revision(),
        "parameters": parameters,
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _file_system(path: Path) -> str:
    found = max(
        (part for part in psutil.disk_partitions(all=True) if _holds(part, path)),
        key=lambda part: len(part.mountpoint),
        default=None,
    )
    if found is None:
        return "unknown"
    memory = (
        " (memory: durable writes are free here)" if found.fstype == "tmpfs" else ""
    )
    return f"{found.fstype} {found.opts}{memory}"


def _holds(part: object, path: Path) -> bool:
    return path.resolve().is_relative_to(getattr(part, "mountpoint", "/"))


def _packages() -> str:
    found = [f"sqlite {sqlite3.sqlite_version}"]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} missing")
    return ", ".join(found)


def revision() -> str:
    """Return what is measured, with "-dirty" behind it where it is not committed.

    Documents and the results of record change nothing that is measured.
    """
    changed = ("status", "--porcelain", "--untracked-files=no", "--", *_MEASURED)
    dirty = "-dirty" if _git(*changed) else ""
    return (_git("describe", "--always") or "unknown") + dirty


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()
