"""The source as a whole: imports, privates, words, loggers; see `tests.house`."""

import ast
import re
from pathlib import Path

import house


def test_imports_make_no_cycle() -> None:
    """Within functions and for types alone they count as well."""
    assert house.cycles(house.imports()) == []


def test_a_cycle_is_found() -> None:
    edges = {"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set[str]()}
    assert house.cycles(edges) == [{"a", "b", "c"}]


def test_folders_of_the_write_ahead_log_are_a_stack() -> None:
    """A folder uses what is below it; `use`, paths within code and methods count."""
    edges = house.rust_imports()
    assert len(edges) > 60
    assert house.cycles(house.rust_folders(edges)) == []
    assert house.rust_calls_upwards() == []


def test_modules_of_the_write_ahead_log_make_no_cycle() -> None:
    assert house.cycles(house.rust_imports()) == []


def test_the_import_picture_is_that_of_the_source() -> None:
    assert house.drawn() == house.picture(), "run: python -m tests.house --write"


def test_privates_stay_in_their_folder() -> None:
    where = "use what the folder offers, or take the underscore off what you need"
    assert house.private_reaches() == [], where


def test_files_become_durable_in_one_way() -> None:
    """By `braidlog.durable`, or the line before says why not."""
    assert house.syncs_elsewhere() == [], "see braidlog/durable.py"


def test_lines_of_code_are_no_docstrings(tmp_path: Path) -> None:
    text = '''"""A module."""

X: int
"""Of a value."""


def made(*_: object) -> list[int]:
    """Say what it does,

    and more.
    """
    # Why.
    return [
        1,
    ]
'''
    path = tmp_path / "made.py"
    path.write_text(text)
    assert house.code_lines(path) == 5


def test_names_use_words_that_are_listed() -> None:
    """Name a module or class by a word of the glossary, or add the word there."""
    where = "see docs/glossary.md and tests/plain_words.txt"
    assert house.unlisted_words() == {}, where


def test_loggers_are_named_by_their_modules() -> None:
    form = re.compile(r"^_log = logging\.getLogger\(__name__\)$", re.MULTILINE)
    others = []
    for path in house.package_files():
        text = path.read_text()
        if text.count("logging.getLogger(__") != len(form.findall(text)):
            others.append(house.short(path))
        if re.search(r"^_?[A-Za-z]+ = logging\.getLogger\(\"", text, re.MULTILINE):
            others.append(house.short(path))
    assert others == [], "write: _log = logging.getLogger(__name__)"


def test_docstrings_have_one_style() -> None:
    """Sections as `Raises:`, names as ``name``; ruff checks the rest."""
    foreign = re.compile(r":(param|returns?|raises|rtype)\b[^`\n]*:|\n\s*-{4,}\n")
    found = [
        f"{house.short(path)}:{node.lineno}"
        for path in house.package_files()
        for node in ast.walk(house.tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if foreign.search(ast.get_docstring(node) or "")
    ]
    assert found == [], "write sections in Google form, `Raises:` and `name: when`"
