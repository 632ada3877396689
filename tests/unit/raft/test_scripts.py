"""The scripts print what they say. BRAIDLOG_REWRITE=1 writes down what they print."""

import os
import re
from pathlib import Path

import pytest

from unit.raft.script import Script

LISTED = (
    "01 02 04 05 07 08 10 11 13 14 16 17 19 20 22 23 25 26 28 29 31 32 34 35 37 38 40"
    " 41 43 44 46 47 49 50 52 53 55 56 58 59 61 62 64 65 66"
)
SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


def replay(text: str) -> str:
    """Return the script with what its commands print now."""
    script = Script()
    lines: list[str] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            lines.append(line)
        elif line.startswith("> "):
            if line.startswith("> nodes"):
                script = Script()
            lines += [line, *script.run(line[2:])]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    expected = path.read_text()
    printed = replay(expected)
    if os.environ.get("BRAIDLOG_REWRITE"):
        path.write_text(printed)
        return
    assert printed.splitlines() == expected.splitlines()


def test_each_scenario_has_its_script() -> None:
    """In a comment on top of it; `scripts/README.md` says where."""
    tops = re.findall(
        r"^# ((?:[RS]\d\d[:,] )+)", "".join(path.read_text() for path in SCRIPTS), re.M
    )
    found = re.findall(r"R(\d\d)", " ".join(tops))
    assert sorted(set(found)) == LISTED.split()


def test_the_list_says_where() -> None:
    readme = (Path(__file__).parent / "scripts" / "README.md").read_text()
    rows = re.findall(r"^\| (R.*) \| `(\w+\.txt)` \|$", readme, re.M)
    said = {(number, name) for numbers, name in rows for number in numbers.split(", ")}
    there = {
        (number, path.name)
        for path in SCRIPTS
        for line in re.findall(r"^# (?:[RS]\d\d[:,] )+", path.read_text(), re.M)
        for number in re.findall(r"R\d\d", line)
    }
    assert said == there
