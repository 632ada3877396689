"""Each situation of the scenarios is shown by tests that exist, or is not ours."""

import re
from collections.abc import Iterator
from pathlib import Path

from docs.documents import ROOT, SCENARIOS, has_test, name

HEAD = ["situation", "what holds", "shown by"]
_NAMED = re.compile(r"((?:tests|native)/[\w/.-]+\.(?:py|rs|txt))(?:::(\w+))?")


def rows(document: Path) -> list[list[str]]:
    lines = [line for line in document.read_text().splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row != HEAD and set("".join(row)) != {"-"}]


def wrong(row: list[str]) -> Iterator[str]:
    """Say what is wrong with a row."""
    if len(row) != len(HEAD) or not all(row[:2]):
        yield "a cell is empty, or there is one too many or too few"
        return
    if re.match(r"`?not ours:?`?:? *\w", row[2]):
        return
    tests = re.findall(r"`([^`]+)`", row[2])
    if not tests:
        yield "nothing shows it"
    for test in tests:
        named = _NAMED.fullmatch(test)
        if named is None:
            yield f"{test} is no test"
        elif not (ROOT / named[1]).is_file():
            yield f"there is no {named[1]}"
        elif named[2] and not has_test(named[1], named[2]):
            yield f"there is no {test}"


def test_every_situation_is_shown_by_tests_that_exist() -> None:
    assert [name(each) for each in SCENARIOS if not rows(each)] == []
    found = [
        (name(document), row[0], text)
        for document in SCENARIOS
        for row in rows(document)
        for text in wrong(row)
    ]
    assert found == []


def test_no_situation_stands_twice() -> None:
    for document in SCENARIOS:
        situations = [row[0] for row in rows(document)]
        assert len(situations) == len(set(situations)), name(document)
