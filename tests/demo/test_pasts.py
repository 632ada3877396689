"""The table of files at old commits, against git; the fixtures are of `test_git`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from examples.demo.events import encode, key_of
from examples.demo.files import write_events
from examples.demo.githistory import open_history
from examples.demo.options import LOG
from examples.demo.pasts import keep_table, pasts, positions_of, trees_of

from braidlog.testing import MemoryStore
from demo.test_git import Git, commit, git, top

__all__ = ["git", "top"]


def grown(git: Git, top: Path, count: int) -> None:
    """Commit puts, changes and deletions, among them of everything."""
    for number in range(count):
        (top / f"f{number % 5}").write_text(f"{number}\n")
        (top / 'od"op":"delete"d').write_text(f"{number // 3}\n")
        if number % 4 == 3:
            (top / f"f{(number - 2) % 5}").unlink(missing_ok=True)
        if number == 11:
            for path in top.glob("[fo]*"):
                path.unlink()
        commit(git, f"{number}")


def kept(top: Path, store: MemoryStore, flushed: int) -> Any:
    log = store.create_log(LOG, exist_ok=True)
    table = keep_table(store)
    for number, event in enumerate(open_history(top).events(), 1):
        log.append(encode(event), key=key_of(event))
        if number % flushed == 0:
            table.flush()
    return table


def test_the_table_at_each_commit_is_the_tree_of_git(
    git: Git, top: Path, tmp_path: Path
) -> None:
    grown(git, top, 20)
    history = open_history(top)
    path = tmp_path / "events.jsonl"
    list(write_events(path, history.events()))
    positions = positions_of(path)
    with MemoryStore() as store:
        table = kept(top, store, 7)
        host = store._table_host()
        while host.native(host.entry(table.name))._native.compact():
            pass
        found = list(pasts(table, history, positions, 1000, 5))
        assert len(found) == len(positions) == 20
        assert [past.differences for past in found] == [[]] * 20
        assert {past.position for past in found} == set(positions.values())
        assert trees_of(table) == {history.source: history.tree()}
        assert any(past.files == 0 for past in found)
        # A few are the same each time for one seed.
        few = [past.commit for past in pasts(table, history, positions, 3, 5)]
        assert len(few) == 3
        assert few == [past.commit for past in pasts(table, history, positions, 3, 5)]


def test_what_differs_is_found(git: Git, top: Path, tmp_path: Path) -> None:
    grown(git, top, 6)
    history = open_history(top)
    path = tmp_path / "events.jsonl"
    list(write_events(path, history.events()))
    positions = positions_of(path)
    # One event too early: the last change of the commit is missing.
    wrong = {commit: max(1, at - 1) for commit, at in positions.items()}
    with MemoryStore() as store:
        found = list(pasts(kept(top, store, 4), history, wrong, 1000, 5))
    assert all(past.differences for past in found)
