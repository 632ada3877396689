"""The documents, and the code blocks in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
]
SCENARIOS = sorted((ROOT / "docs" / "scenarios").glob("*.md"))
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
    text = (ROOT / file).read_text()
    if file.endswith(".py"):
        return re.search(rf"^(async )?def {test}\(", text, re.M) is not None
    return re.search(rf"#\[test\](\s*#\[[^\]]*\])*\s*fn {test}\(", text) is not None


def name(document: Path) -> str:
    return str(document.relative_to(ROOT))
