"""Each situation of the scenarios is shown by tests that exist, or is not ours."""

import re
from pathlib import Path

import pytest

from docs.documents import ROOT, SCENARIOS, has_test, name

HEAD = ["situation", "what holds", "shown by"]
_NAMED = re.compile(r"((?:tests|native)/[\w/.-]+\.(?:py|rs|txt))(?:::(\w+))?")


def rows(document: Path) -> list[list[str]]:
    lines = [line for line in document.read_text().splitlines() if line[:1] == "|"]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row != HEAD and set("".join(row)) != {"-"}]


@pytest.mark.parametrize("document", SCENARIOS, ids=name)
def test_every_situation_is_shown_by_tests_that_exist(document: Path) -> None:
    found = rows(document)
    assert found
    for row in found:
        assert len(row) == len(HEAD), row
        situation, holds, shown = row
        assert situation, row
        assert holds, row
        if re.match(r"`?not ours:?`?:? *\w", shown):
            continue
        tests = re.findall(r"`([^`]+)`", shown)
        assert tests, f"{situation}: nothing shows it"
        for test in tests:
            named = _NAMED.fullmatch(test)
            assert named, f"{situation}: {test} is no test"
            path, function = named.groups()
            assert (ROOT / path).is_file(), f"{situation}: there is no {path}"
            assert not function or has_test(path, function), f"{situation}: {test}"


@pytest.mark.parametrize("document", SCENARIOS, ids=name)
def test_no_situation_stands_twice(document: Path) -> None:
    situations = [row[0] for row in rows(document)]
    assert len(situations) == len(set(situations))
