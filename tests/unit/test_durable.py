"""Files that survive a loss of power: each step that may be the last one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from braidlog import durable

CALLS = ("fsync", "replace", "link", "unlink", "mkdir")


class Crash(BaseException):
    """The process is gone: nothing that it would do afterwards happens."""


class Calls:
    """What was done to files, in order; stops everything at the so-many-th."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.last = -1

    def note(self, name: str, argument: Any) -> None:
        if len(self.made) == self.last:
            raise Crash
        where = Path(f"/proc/self/fd/{argument}") if name == "fsync" else argument
        path = where.readlink() if name == "fsync" else Path(where)
        self.made.append(f"{name} {path.name}")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    calls = Calls()

    def noted(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(argument: Any, *rest: Any, **options: Any) -> Any:
            calls.note(name, argument)
            return original(argument, *rest, **options)

        return call

    with monkeypatch.context() as patched:
        for name in CALLS:
            patched.setattr(os, name, noted(name))
        yield calls


def test_content_is_durable_before_its_name(tmp_path: Path, calls: Calls) -> None:
    durable.replace(tmp_path / "a", b"new")
    assert calls.made == ["fsync a.tmp", "replace a.tmp", f"fsync {tmp_path.name}"]


def test_a_crash_leaves_the_old_file_or_the_new_one(
    tmp_path: Path, calls: Calls
) -> None:
    path = tmp_path / "a"
    seen = []
    for last in range(4):
        path.write_bytes(b"old")
        calls.made, calls.last = [], last
        try:
            durable.replace(path, b"new")
        except Crash:
            assert last < 3
        seen.append(path.read_bytes())
    assert seen == [b"old", b"old", b"new", b"new"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def write_half() -> None:
        with durable.replacing(tmp_path / "a", temporary=tmp_path / "b") as file:
            file.write(b"ne")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        write_half()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_file_is_created_once(tmp_path: Path, calls: Calls) -> None:
    path = tmp_path / "a"
    durable.create(path, b"first", temporary=tmp_path / "1")
    assert calls.made[:3] == ["fsync 1", "link 1", f"fsync {tmp_path.name}"]
    calls.made = []
    with pytest.raises(FileExistsError):
        durable.create(path, b"second", temporary=tmp_path / "2")
    # The name is durable also if another process made it a moment before.
    assert calls.made[:3] == ["fsync 2", "link 2", f"fsync {tmp_path.name}"]
    assert path.read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_directory_is_made_with_its_parents(tmp_path: Path, calls: Calls) -> None:
    durable.make_directory(tmp_path / "a" / "b")
    made = [call for call in calls.made if call.startswith("fsync")]
    assert made == [f"fsync {tmp_path.name}", "fsync a"]
    # Once more: who made it may not have come to the sync.
    calls.made = []
    durable.make_directory(tmp_path / "a" / "b")
    assert calls.made == ["mkdir b", "fsync a"]
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        durable.make_directory(tmp_path / "file")


def test_names_up_to_a_root_are_durable(tmp_path: Path, calls: Calls) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    calls.made = []
    durable.sync_up_to(tmp_path / "a" / "b", tmp_path)
    assert calls.made == ["fsync b", "fsync a", f"fsync {tmp_path.name}"]


def test_a_directory_that_another_user_made(
    tmp_path: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parent may be entered and not read: then it cannot be synced either."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    durable.make_directory(tmp_path / "a")
    durable.make_directory(tmp_path / "a")
    assert calls.made == ["mkdir a", f"fsync {tmp_path.name}", "mkdir a"]
