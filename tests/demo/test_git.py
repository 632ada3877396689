"""History of real repositories: replaying it gives exactly what git has."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from examples.demo.events import Tree
from examples.demo.githistory import GitHistory, open_history, parse_log
from examples.demo.options import DemoError

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path) -> Git:
    top = tmp_path / "repo"
    top.mkdir()
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }

    def run(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(top), *arguments],
            env=environ,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    run("init", "-q", "-b", "main")
    return run


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return tmp_path / "repo"


def commit(git: Git, message: str = "change") -> None:
    git("add", "-A")
    git("commit", "-q", "--allow-empty", "-m", message)


def replayed(history: GitHistory) -> Tree:
    tree: Tree = {}
    for expected, event in enumerate(history.events()):
        assert event.seq == expected
        if event.entry is None:
            del tree[event.path]
        else:
            tree[event.path] = event.entry
    return tree


def check(top: Path) -> GitHistory:
    history = open_history(top)
    assert replayed(history) == history.tree()
    return history


def test_puts_changes_and_deletions(git: Git, top: Path) -> None:
    for name in ("a", "b", "c"):
        (top / name).write_text(name)
    commit(git)
    (top / "a").write_text("new")
    (top / "b").unlink()
    (top / "c").rename(top / "d")
    commit(git)
    history = check(top)
    found = [(event.path, event.entry is not None) for event in history.events()]
    assert found[:3] == [("a", True), ("b", True), ("c", True)]
    assert sorted(found[3:]) == [("a", True), ("b", False), ("c", False), ("d", True)]
    assert history.source == "repo"
    assert len({event.author for event in history.events()}) == 1


def test_merges_also_with_a_fix_inside(git: Git, top: Path) -> None:
    (top / "both").write_text("1\n")
    commit(git)
    git("checkout", "-q", "-b", "side")
    (top / "both").write_text("side\n")
    (top / "side").write_text("side\n")
    commit(git)
    git("checkout", "-q", "main")
    (top / "both").write_text("main\n")
    commit(git)
    git("merge", "-q", "-s", "ours", "--no-commit", "side")
    (top / "side").write_text("resolved by hand\n")
    (top / "only-in-merge").write_text("x")
    commit(git, "merge")
    commit(git, "empty")
    (top / "both").unlink()
    commit(git)
    check(top)


def test_an_octopus_and_unrelated_histories(git: Git, top: Path) -> None:
    (top / "base").write_text("1")
    commit(git)
    for branch in ("x", "y"):
        git("checkout", "-q", "-b", branch, "main")
        (top / branch).write_text(branch)
        commit(git)
    git("checkout", "-q", "--orphan", "other")
    git("rm", "-q", "-rf", ".")
    (top / "other").write_text("o")
    commit(git)
    git("checkout", "-q", "main")
    git("merge", "-q", "-m", "octopus", "x", "y")
    git("merge", "-q", "--allow-unrelated-histories", "-m", "join", "other")
    history = check(top)
    assert sorted(history.tree()) == ["base", "other", "x", "y"]


def test_odd_paths_links_modes_and_submodules(git: Git, top: Path) -> None:
    odd = [
        b"sp ace",
        b"new\nline",
        b'tab\tq"uote',
        b":colon",
        b"\xff\xfe",
        "ü".encode(),
    ]
    for name in odd:
        (top / os.fsdecode(name)).write_text("x")
    (top / "link").symlink_to("nowhere")
    (top / "run").write_text("#!/bin/sh\n")
    (top / "run").chmod(0o755)
    (top / "place").write_text("a file that becomes a directory")
    commit(git)
    head = git("rev-parse", "HEAD").strip()
    git("update-index", "--add", "--cacheinfo", f"160000,{head},module")
    git("commit", "-q", "-m", "submodule")
    (top / "place").unlink()
    (top / "place").mkdir()
    (top / "place" / "inside").write_text("x")
    (top / "link").unlink()
    (top / "link").write_text("a link that becomes a file")
    git("add", "place", "link")
    git("commit", "-q", "-m", "types")
    tree = check(top).tree()
    assert {os.fsencode(path) for path in tree} >= set(odd)
    assert tree["module"] == (head, "160000")
    assert tree["run"][1] == "100755"
    assert tree["link"][1] == "100644"


def test_settings_of_the_user_change_nothing(git: Git, top: Path) -> None:
    (top / "sub").mkdir()
    for name in ("a", "b", "sub/c"):
        (top / name).write_text(name * 100)
    commit(git)
    (top / "a").rename(top / "renamed")
    commit(git)
    plain = list(check(top).events())
    for name, value in [
        ("diff.renames", "copies"),
        ("diff.relative", "true"),
        ("log.showRoot", "false"),
        ("log.diffMerges", "combined"),
        ("log.showSignature", "true"),
        ("diff.ignoreSubmodules", "all"),
        ("color.ui", "always"),
        ("core.quotePath", "true"),
    ]:
        git("config", name, value)
    assert list(check(top / "sub").events()) == plain


def test_a_bare_and_a_shallow_clone(git: Git, top: Path, tmp_path: Path) -> None:
    for content in ("1", "2", "3"):
        (top / "file").write_text(content)
        (top / content).write_text(content)
        commit(git)
    git("clone", "-q", "--bare", str(top), str(tmp_path / "bare.git"))
    git("clone", "-q", "--depth=2", top.as_uri(), str(tmp_path / "shallow"))
    bare, shallow = check(tmp_path / "bare.git"), check(tmp_path / "shallow")
    assert bare.source == "bare"
    assert bare.tree() == shallow.tree()
    assert len(list(shallow.events())) < len(list(bare.events()))


def test_later_commits_are_not_seen(git: Git, top: Path) -> None:
    (top / "a").write_text("1")
    commit(git)
    history = open_history(top)
    (top / "b").write_text("2")
    commit(git)
    assert sorted(history.tree()) == sorted(replayed(history)) == ["a"]


def test_clear_errors(git: Git, top: Path, tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="has no commits yet"):
        open_history(top)
    (tmp_path / "plain").mkdir()
    with pytest.raises(DemoError, match=r"is not in a git repository.*--git"):
        open_history(tmp_path / "plain")
    with pytest.raises(DemoError, match="is not a directory"):
        open_history(tmp_path / "absent")
    with pytest.raises(DemoError, match="git log failed"):
        list(GitHistory(top, "repo", "0" * 40).events())


def test_a_repository_without_files_has_no_events(git: Git, top: Path) -> None:
    commit(git)
    assert list(check(top).events()) == []


def test_parses_the_raw_format() -> None:
    tokens = [
        b"a" * 40 + b" 7 x@y z",
        b"\n:000000 100644 " + b"0" * 40 + b" " + b"1" * 40 + b" A",
        b"\nodd",
        b":100644 000000 " + b"1" * 40 + b" " + b"0" * 40 + b" D",
        b":gone",
        b"b" * 40 + b" 8 ",
    ]
    first, second = parse_log(tokens, "s")
    assert (first.ts, first.commit, first.path) == (7, "a" * 12, "\nodd")
    assert first.entry == ("1" * 40, "100644")
    assert (second.seq, second.path, second.entry) == (1, ":gone", None)
