"""The scripts print what they say. BRAIDLOG_REWRITE=1 writes down what they print."""

import os
from pathlib import Path

import pytest

from unit.logstream.script import Script

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


def replay(text: str) -> str:
    """Return the script with what its commands print now."""
    script = Script()
    lines: list[str] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            lines.append(line)
        elif line.startswith("> "):
            if line.startswith("> group"):
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
