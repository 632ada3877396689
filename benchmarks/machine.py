"""What a result depends on: machine, file system, versions, revision, parameters."""

import platform
import sqlite3
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

_PACKAGES = ("braidlog", "rocksdict", "lmdb", "pyarrow", "numpy")


def describe(directory: Path, parameters: str) -> dict[str, str]:
    """Return the header of a result, in printing order."""
    return {
        "cpu": f"{_cpu()}, {psutil.cpu_count()} logical",
        "memory": f"{psutil.virtual_memory().total / (1 << 30):.0f} GiB",
        "load": " ".join(f"{load:.2f}" for load in psutil.getloadavg()),
        "kernel": platform.release(),
        "file system": _file_system(directory),
        "python": platform.python_version(),
        "packages": _packages(),
        "revision": _revision(),
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


def _revision() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    folder = Path(__file__).parent
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"
