"""The disk of a simulated host: real files, of which a loss of power takes back some.

*Theory of operation.* Files lie on a file system in memory, so that SQLite and all else
use them as they do in production. What was synced is kept beside: the content of files
as of their last sync, and the names in directories as of theirs. A crash is a copy of
the tree, on which the next life of the host begins; what the dead one still has open is
no part of it. Without power the copy has of each difference between now and the last
sync all, nothing, or some blocks.

*Invariants.* Files and directories are known by their number, under whatever name: what
was synced and renamed later is still synced. A sync counts with the content that there
was when it began, and at its begin or at its end.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from sim.threads import Threads

__all__ = ["HostDisk"]

_SYNC_S: Final = 0.001
# Share of syncs that do their work at once and say so late.
_EARLY: Final = 0.3
_BLOCK_BYTES: Final = 512
# Share of the files of snapshots that do not become durable as they were written.
_ROTS: Final = 0.03
_COPIES: Final = "new"


class HostDisk:
    """Files that survive the processes of one host; the nemesis makes them worse."""

    def __init__(self, threads: Threads, directory: Path, random: Random) -> None:
        """Begin empty and healthy."""
        self._threads = threads
        self._directory = directory
        self._random = random
        self._number = 0
        # By number: contents of files and names in directories as of the last sync.
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, int]] = {}
        # Whether the disk was in trouble since the last start: then a host may fail.
        self.hurt = False
        self.rotten = 0
        self._slow = 0.0
        self._failing = False
        self.path.mkdir(parents=True)
        self._all_synced()

    @property
    def path(self) -> Path:
        """Where the files of the present life are."""
        return self._directory / f"{self._number}"

    def start(self) -> None:
        """Note that a process begins to use the disk."""
        self.hurt = self._failing

    # Syncs.

    def sync(self, path: Path, *, named: bool = False) -> None:
        """Make a file or a directory durable, in virtual time.

        ``named``: the name of the file as well.

        Raises:
            OSError: the disk fails.
        """
        if not self._mine(path):
            return  # Of a life that is over.
        number = self._number
        self._rot(path)
        done = self._noting(path, named=named)
        early = self._random.random() < _EARLY
        if early and not self._failing:
            done()
        self._threads.sleep(self._random.uniform(0.2, 1.5) * (self._slow or _SYNC_S))
        if self._failing:
            raise OSError(errno.EIO, "the simulated disk fails")
        if not early and number == self._number:
            done()

    def _rot(self, path: Path) -> None:
        """Damage a copy now and then that is on its way to the device."""
        copied = path.name.endswith(".db") and path.parent.name == _COPIES
        if copied and self._random.random() < _ROTS:
            content = bytearray(path.read_bytes())
            content[self._random.randrange(len(content))] ^= 0xFF
            path.write_bytes(content)
            self.rotten += 1

    def _mine(self, path: Path) -> bool:
        return path.is_relative_to(self.path) and path.exists()

    def synced(self, directory: Path) -> None:
        """Note that somebody made a directory durable with all that is below."""
        if not self._mine(directory):
            return
        for path in _below(directory):
            self._noting(path)()
        self._noting(directory, named=True)()

    def _noting(self, path: Path, *, named: bool = False) -> Callable[[], None]:
        """Return what notes the present content as durable."""
        number = path.stat().st_ino
        names = {each.name: each.inode() for each in _entries(path)}
        content = b"" if path.is_dir() else path.read_bytes()
        is_directory, parent = path.is_dir(), path.parent.stat().st_ino

        def note() -> None:
            if is_directory:
                self._names[number] = names
            else:
                self._contents[number] = content
            if named:
                self._names.setdefault(parent, {})[path.name] = number

        return note

    def _all_synced(self) -> None:
        self._contents.clear()
        self._names.clear()
        for path in (self.path, *_below(self.path)):
            self._noting(path)()

    def durable(self, path: Path) -> dict[str, bytes]:
        """Return the files of a directory as a loss of power would leave them."""
        if not path.exists():
            return {}
        number = self.path.stat().st_ino
        for name in path.relative_to(self.path).parts:
            number = self._names.get(number, {}).get(name, 0)
        names = self._names.get(number, {})
        return {name: self._contents.get(each, b"") for name, each in names.items()}

    # Crashes.

    def on_crash(self, *, power: bool) -> None:
        """Keep what a crash leaves: without power, some of what was not synced."""
        before = self.path
        self._number += 1
        if power:
            shutil.copytree(before, self.path)
        else:
            self._lose(before)
        self._all_synced()

    def copy(self, target: Path) -> None:
        """Copy the files as they are now."""
        shutil.copytree(self.path, target)

    def _lose(self, before: Path) -> None:
        paths = {path.stat().st_ino: path for path in _below(before)}
        paths[before.stat().st_ino] = before
        keep = self._random.choice(["all", "none", "some", "some"])
        renamed = self._random.random() < 0.5
        self._build(before.stat().st_ino, paths, self.path, keep, renamed=renamed)

    def _build(
        self, number: int, paths: dict[int, Path], into: Path, keep: str, renamed: bool
    ) -> None:
        into.mkdir()
        there = paths.get(number)
        now = {} if there is None else {e.name: e.inode() for e in _entries(there)}
        then = self._names.get(number, {})
        for name, each in sorted((now if renamed else then).items()):
            path = paths.get(each)
            if each in self._names or (path is not None and path.is_dir()):
                self._build(each, paths, into / name, keep, renamed)
            else:
                (into / name).write_bytes(self._content(each, path, keep))

    def _content(self, number: int, path: Path | None, keep: str) -> bytes:
        durable = self._contents.get(number, b"")
        if path is None or keep == "none":
            return durable
        present = path.read_bytes()
        if keep == "all" or present == durable:
            return present
        size = self._random.choice([len(durable), len(present)])
        found = bytearray(size)
        for begin in range(0, size, _BLOCK_BYTES):
            source = self._random.choice([durable, present])
            block = source[begin : begin + _BLOCK_BYTES][: size - begin]
            found[begin : begin + len(block)] = block
        return bytes(found)

    # What the nemesis does.

    def slow(self, seconds: float) -> None:
        """Let each sync take about that long; 0 is as usual."""
        self._slow = seconds

    def fail_syncs(self, failing: bool) -> None:
        """Let syncs fail, or work again."""
        self._failing = failing
        self.hurt = self.hurt or failing

    def fill(self, full: bool) -> None:
        """Do nothing: the file system in memory has no bound."""


def _entries(path: Path) -> list[os.DirEntry[str]]:
    if not path.is_dir():
        return []
    with os.scandir(path) as entries:
        return list(entries)


def _below(path: Path) -> Iterator[Path]:
    for each in sorted(path.iterdir()):
        yield each
        if each.is_dir():
            yield from _below(each)
