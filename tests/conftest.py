"""Options and fixtures that every test may use."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--wheel", type=Path, help="directory of the wheel that test_wheel.py installs"
    )


# Files that take long, first: else one process works on the last of them alone. Those
# with a Java runtime change places with others, so that few of them run at a time.
_SLOW = ("cluster", "process", "sim", "docs", "conformance")
_JAVA = ("spark", "demo", "examples")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files: dict[Path, int] = {}
    for item in items:
        files.setdefault(item.path, len(files))

    def place(item: pytest.Item) -> tuple[float, int]:
        parts, number = item.path.parts, files[item.path]
        for kinds in (_JAVA, _SLOW):
            if any(kind in parts for kind in kinds):
                mine = [f for f in files if any(kind in f.parts for kind in kinds)]
                return mine.index(item.path) / len(mine), number
        return 2.0, number

    items.sort(key=place)
