"""The source itself: files of a readable length, nothing left over."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import house
from order import FIRST

ROOT = Path(__file__).parents[1]
LINES_MAX = 900
# Written in two parts, so that this file does not find itself.
LEFTOVERS = ["FIX" + "ME", "TO" + "DO", "XX" + "X"]


def tracked(*patterns: str) -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name]


def source() -> list[Path]:
    return [path for path in tracked("*.py", "*.pyi", "*.rs") if path.exists()]


def test_no_file_is_too_long() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in source()}
    too_long = {p: n for p, n in lengths.items() if n > LINES_MAX}
    assert too_long == {}, f"split each: a file has {LINES_MAX} lines at most"


def test_long_files_say_why_they_are_one() -> None:
    """Past 500 lines, look for the second idea: a comment says that there is none."""
    mute = [house.short(each.path) for each in house.long_files() if not each.reason]
    assert mute == [], "add a line `# One file: <why>` at the top, or find the idea"


def test_no_function_is_too_long() -> None:
    assert house.long_functions() == [], "give a part of each a name of its own"


def test_nothing_is_left_over() -> None:
    found = [
        (path, word)
        for path in source()
        for word in LEFTOVERS
        if word in path.read_text()
    ]
    assert found == []


def test_text_files_end_cleanly() -> None:
    text = [*source(), *tracked("*.md", "*.toml", "Makefile", ".ci/*", "*.lock")]
    ends = [p for p in text if not p.read_text().endswith("\n")]
    trailing = [p for p in text if " \n" in p.read_text() and p.suffix != ".md"]
    assert (ends, trailing) == ([], [])


def test_what_is_run_first_is_there() -> None:
    assert [each for each in FIRST if not (ROOT / each).exists()] == []


def pytest_alone(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of `test_it.py` as ours are run."""
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    command += ["-c", str(ROOT / "pyproject.toml"), "--confcutdir", str(folder)]
    command += ["-p", "conftest", "-p", "no:cacheprovider", "test_it.py"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True
    )


def test_what_tests_started_ends_with_them(tmp_path: Path) -> None:
    """Also where they are killed, in another session, and when it is stopped."""
    (tmp_path / "test_it.py").write_text(
        "import os, signal, subprocess, sys\n"
        "def test_it():\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'input()'],"
        " stdin=subprocess.PIPE, start_new_session=True)\n"
        "    os.kill(child.pid, signal.SIGSTOP)\n"
        "    open('pid', 'w').write(str(child.pid))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = pytest_alone(tmp_path)
    assert done.returncode == -signal.SIGKILL, done.stdout
    child = Path("/proc", (tmp_path / "pid").read_text(), "cmdline")

    def lives() -> bool:  # That of a zombie is empty.
        return child.exists() and child.read_bytes() != b""

    deadline = time.monotonic() + 30
    while lives() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not lives()


def test_soaks_run_only_where_they_are_asked_for(tmp_path: Path) -> None:
    """A `-m` that speaks of something else leaves them out as well."""
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "@pytest.mark.soak\ndef test_long(): pass\n"
        "def test_short(): pass\n"
    )

    def run(*arguments: str) -> set[str]:
        done = pytest_alone(tmp_path, "--collect-only", *arguments)
        return set(re.findall(r"test_\w+$", done.stdout, re.MULTILINE))

    assert run("-m", "not slow") == {"test_short"}
    assert run("-m", "soak") == {"test_long"}
