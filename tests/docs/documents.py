"""The documents, and the code blocks in them."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "operating").glob("*.md")),
]
SCENARIOS = sorted((ROOT / "docs" / "scenarios").glob("[!R]*.md"))
NOTES = [*sorted((ROOT / "docs" / "design").glob("*.md")), *SCENARIOS]

_FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block: the words behind the fence, its text, its line."""

    words: tuple[str, ...]
    text: str
    line: int


def blocks(document: Path) -> list[Block]:
    text = document.read_text()
    return [
        Block(tuple(match[1].split()), match[2], text.count("\n", 0, match.start()) + 2)
        for match in _FENCE.finditer(text)
    ]


def has_test(file: str, test: str) -> bool:
    """Tell whether a file has a test of that name."""
    return test in _tests(ROOT / file)


@cache
def _tests(file: Path) -> frozenset[str]:
    text = file.read_text() if file.exists() else ""
    if file.suffix == ".py":
        return frozenset(re.findall(r"^(?:async )?def (\w+)\(", text, re.M))
    return frozenset(re.findall(r"#\[test\](?:\s*#\[[^\]]*\])*\s*fn (\w+)\(", text))


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))
