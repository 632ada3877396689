"""The change history of a git repository as events, and its tree as the oracle.

Theory of operation: the history is walked along first parents, oldest commit first,
and each commit contributes its difference to its first parent (the oldest one: to the
empty tree). So the changes of commit i turn the tree of commit i-1 into the tree of
commit i, and by induction replaying all of them gives the tree of the last commit: a
merge brings its whole effect on the main line in one step, and nothing is counted
twice. Renames are not looked for, so each is a deletion and a put. In a shallow clone
git treats the oldest commit it has as the first one, and the same holds.

The revision is resolved once: commits made meanwhile change neither side.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from examples.demo.events import Event, Tree
from examples.demo.options import DemoError

__all__ = ["GitHistory", "open_history", "parse_log", "parse_tree"]

_LOG: Final = (
    "log",
    "--first-parent",
    "--diff-merges=first-parent",
    "--reverse",
    "--root",
    "--raw",
    "--no-abbrev",
    "--no-renames",
    "--no-relative",
    "--ignore-submodules=none",
    "--no-notes",
    "--no-show-signature",
    "--no-color",
    "-z",
    "--format=%H %ct %ae",
)
_READ_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class GitHistory:
    """The history of one revision of a repository."""

    path: Path
    source: str
    head: str

    def events(self) -> Iterator[Event]:
        """Stream all changes, oldest first; memory does not grow with the history."""
        with _git(self.path, *_LOG, self.head, "--") as out:
            yield from parse_log(_split(out), self.source)

    def tree(self, commit: str | None = None) -> Tree:
        """Return what git has at this revision, or at a commit of the history."""
        what = ("ls-tree", "-r", "-z", "--full-tree", commit or self.head)
        with _git(self.path, *what) as out:
            return parse_tree(_split(out))


def open_history(path: Path) -> GitHistory:
    """Find the repository that ``path`` is in and resolve its current commit.

    Raises:
        DemoError: There is no repository, no commit, or no git.
    """
    if not path.is_dir():
        raise DemoError(f"{path} is not a directory: --git wants a git repository")
    top = _ask(path, "rev-parse", "--absolute-git-dir")
    if top is None:
        raise DemoError(
            f"{path.absolute()} is not in a git repository: run the demo in one, "
            "name one with --git, or use --input and --oracle"
        )
    head = _ask(path, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if head is None:
        raise DemoError(
            f"the repository at {path.absolute()} has no commits yet: commit "
            "something, or name another one with --git"
        )
    return GitHistory(path, _name(path, top), head)


def parse_log(tokens: Iterable[bytes], source: str) -> Iterator[Event]:
    """Turn the NUL-separated fields of ``git log --raw -z`` into events."""
    fields = iter(tokens)
    commit, ts, author, seq = "", 0, "", 0
    for field in fields:
        text = field.lstrip(b"\n")
        if not text.startswith(b":"):
            commit, ts, author = _header(text)
            continue
        _, mode, _, blob, status = text[1:].decode("ascii").split(" ")
        path = next(fields).decode("utf-8", "surrogateescape")
        entry = None if status == "D" else (blob, mode)
        yield Event(ts, source, seq, commit, author, path, entry)
        seq += 1


def parse_tree(tokens: Iterable[bytes]) -> Tree:
    """Turn the NUL-separated lines of ``git ls-tree -r -z`` into a tree."""
    tree: Tree = {}
    for line in tokens:
        facts, path = line.split(b"\t", 1)
        mode, _, blob = facts.decode("ascii").split(" ")
        tree[path.decode("utf-8", "surrogateescape")] = (blob, mode)
    return tree


def _header(text: bytes) -> tuple[str, int, str]:
    commit, ts, address = text.split(b" ", 2)
    author = hashlib.sha256(address).hexdigest()[:8]
    return commit[:12].decode("ascii"), int(ts), author


def _split(out: IO[bytes]) -> Iterator[bytes]:
    """Yield what ends in NUL, reading in large pieces."""
    rest = b""
    while piece := out.read(_READ_BYTES):
        *whole, rest = (rest + piece).split(b"\0")
        yield from whole
    if rest.strip(b"\n"):
        yield rest


def _name(path: Path, git_dir: str) -> str:
    top = _ask(path, "rev-parse", "--show-toplevel") or git_dir
    name = Path(top).name.removesuffix(".git") or "repository"
    return name.encode("utf-8", "replace").decode("utf-8", "replace").replace("/", "_")


def _command(path: Path, *arguments: str) -> list[str]:
    settings = ("-c", "log.showRoot=true", "-c", "core.quotePath=false")
    return ["git", "--no-pager", "-C", str(path), *settings, *arguments]


def _environment() -> dict[str, str]:
    """Leave out what would point git at another repository (set inside hooks)."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith("GIT_CONFIG")
    }
    return {**kept, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}


def _ask(path: Path, *arguments: str) -> str | None:
    """Return the one line that git answers, None if it refuses."""
    try:
        answer = subprocess.run(
            _command(path, *arguments),
            capture_output=True,
            env=_environment(),
            check=False,
        )
    except FileNotFoundError:
        raise DemoError(
            "git is not installed: install it, or use --input and --oracle"
        ) from None
    if b"dubious ownership" in answer.stderr:
        raise DemoError(answer.stderr.decode("utf-8", "replace").strip())
    text = answer.stdout.decode("utf-8", "surrogateescape").rstrip("\n")
    return text if answer.returncode == 0 and text else None


@contextmanager
def _git(path: Path, *arguments: str) -> Iterator[IO[bytes]]:
    """Run git and read what it prints; a failure of git is a failure of the demo."""
    command = _command(path, *arguments)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment()
    ) as process:
        assert process.stdout is not None  # noqa: S101, RUF100
        assert process.stderr is not None  # noqa: S101, RUF100
        try:
            yield process.stdout
        except BaseException:
            process.kill()
            raise
        complaint = process.stderr.read().decode("utf-8", "replace").strip()
    if process.returncode:
        raise DemoError(f"git {arguments[0]} failed: {complaint}")
