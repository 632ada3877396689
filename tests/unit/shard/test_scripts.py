"""The scripts print what they say. BRAIDLOG_REWRITE=1 writes down what they print."""

import os
from pathlib import Path

import pytest

from unit.shard.script import Script

LISTED = (
    "01 02 04 05 07 08 10 11 13 14 16 17 19 20 22 23 25 26 28 29 30 31 32 34 35"
    " 37 38 40"
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
    numbers = [path.stem[1:3] for path in SCRIPTS if path.stem[0] == "S"]
    assert numbers == LISTED.split()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_what_the_original_does(path: Path) -> None:
    top = path.read_text().split(">")[0]
    if path.stem[0] == "S":
        assert top.startswith(f"# {path.stem[:3]} ")
    assert path.stem == "conditional-append" or "The original" in top
