"""Options, errors, limits and figures in the documents are those of the code."""

import dataclasses
import inspect
import re
import typing
from pathlib import Path
from typing import Any

import click
import pytest

import braidlog
from braidlog import Log, errors
from braidlog.cli import main
from braidlog.cli.command import failures
from braidlog.metarepo.events import EventName
from braidlog.node.config import NodeConfig
from braidlog.store.catalog import LogStats
from braidlog.store.store import Store, StoreStats, open_store
from compat.layouts import table
from docs.documents import ROOT

OPERATING = ROOT / "docs" / "operating"
_UNITS = {"B": 1, "bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def value(text: str) -> Any:
    """Return what a cell means: a literal in backticks, or a number with a unit."""
    text = text.split(",")[0]
    if literal := re.fullmatch(r"`(.*)`", text):
        return {"False": False, "True": True, "None": None}.get(
            literal[1], literal[1].strip('"')
        )
    number, _, unit = text.partition(" ")
    return int(number) * _UNITS.get(unit, 1)


def tables(document: Path, *columns: str) -> list[list[dict[str, str]]]:
    """Return every table that has the columns."""
    text, found = document.read_text(), []
    for part in re.split(r"\n\n", text):
        if part.startswith("|"):
            scratch = [line for line in part.splitlines() if line.startswith("|")]
            names = [cell.strip() for cell in scratch[0].strip("|").split("|")]
            if set(columns) <= set(names):
                cells = [
                    [cell.strip() for cell in line.strip("|").split("|")]
                    for line in scratch[2:]
                ]
                found.append([dict(zip(names, row, strict=True)) for row in cells])
    return found


def options(call: Any) -> dict[str, Any]:
    parameters = inspect.signature(call).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    }


@pytest.mark.parametrize(
    ("call", "index"), [(open_store, 0), (Store.create_log, 1)], ids=["open", "create"]
)
def test_options_and_defaults(call: Any, index: int) -> None:
    rows = tables(OPERATING / "embedded.md", "option", "default")[index]
    said = {row["option"].strip("`"): value(row["default"]) for row in rows}
    assert said == options(call)


def test_settings_of_a_node() -> None:
    rows = table(OPERATING / "cluster.md", "setting", "default")
    said = {row["setting"].strip("`"): row["default"].strip("`") for row in rows}
    parts = dataclasses.fields(NodeConfig)
    sections = {each.name: each.default_factory for each in parts}
    assert said == {
        f"[{name}] {each.name}": shown(each.default)
        for name, kind in sections.items()
        for each in dataclasses.fields(kind)  # type: ignore[arg-type]
    }


def test_events_of_a_node() -> None:
    said = {
        event.strip("` ")
        for row in table(OPERATING / "cluster.md", "event", "told by")
        for event in row["event"].split(",")
    }
    assert said == set(typing.get_args(EventName))


def shown(default: object) -> str:
    if default is dataclasses.MISSING:
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)


def test_errors() -> None:
    rows = table(OPERATING / "errors.md", "error", "code", "retryable", "exit")
    said = {
        row["error"].strip("`"): (
            int(row["code"]),
            row["retryable"] == "yes",
            int(row["exit"]),
        )
        for row in rows
    }
    classes = {name: getattr(errors, name) for name in errors.__all__}
    assert said == {
        name: (kind.code, kind.retryable, failures.explain(kind("x")).exit_code)
        for name, kind in classes.items()
    }


def test_limits() -> None:
    core, found = ROOT / "native" / "core" / "src", dict[str, str]()
    for path in [*(core / "wal").rglob("*.rs"), core / "limits.rs"]:
        text = path.read_text()
        found |= dict(re.findall(r"pub const (\w+): \w+ = (\d+(?: << \d+)?);", text))
    rows = [
        row
        for row in table(OPERATING / "limits.md", "limit", "constant")
        if row["constant"]
    ]
    assert len(rows) > 10
    for row in rows:
        base, _, shift = found[row["constant"].strip("`")].partition(" << ")
        assert value(row["value"]) == int(base) << int(shift or 0), row["limit"]


def test_every_constant_of_limits_is_in_the_table() -> None:
    text = (ROOT / "native" / "core" / "src" / "limits.rs").read_text()
    constants = set(re.findall(r"pub const (\w+):", text)) - {"BLOCK_BYTES"}
    rows = table(OPERATING / "limits.md", "limit", "constant")
    assert constants <= {row["constant"].strip("`") for row in rows}


@pytest.mark.parametrize(
    ("constant", "named_in"),
    [
        (
            "PIECE_BYTES",
            [Log.submit_many, Log.append_many, Log.submit_arrow, errors.LogFullError],
        ),
        ("AHEAD_BYTES", [Log.submit_arrow]),
    ],
)
def test_sizes_of_bulk_appends(constant: str, named_in: list[Any]) -> None:
    source = (ROOT / "native" / "py" / "src" / "bulk.rs").read_text()
    found = re.search(rf"const {constant}: usize = (\d+) << 20;", source)
    assert found
    size = f"{found[1]} MiB"
    guarantees = (ROOT / "docs" / "guarantees.md").read_text()
    for text in [guarantees, *(inspect.getdoc(item) or "" for item in named_in)]:
        assert size in " ".join(text.split())


@pytest.mark.parametrize(("kind", "index"), [(StoreStats, 0), (LogStats, 1)])
def test_figures(kind: Any, index: int) -> None:
    rows = tables(OPERATING / "embedded.md", "figure", "meaning")[index]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row["figure"])]
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(kind))


def test_versions() -> None:
    rows = table(ROOT / "docs" / "formats.md", "structure", "version")
    versions = {row["structure"]: row["version"] for row in rows}
    second = ("segment", "side file", "fault log", "watermark", "record batch")
    raised = dict.fromkeys(second, "2") | {"node directory": "3"}
    raised |= {"list of a backup": "2", "counters of a table": "2"}
    assert versions == dict.fromkeys(versions, "1") | raised


def test_requirements_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    python = re.search(r'requires-python = ">=([\d.]+)"', project)
    rust = re.search(r'rust-version = "([\d.]+)"', (ROOT / "Cargo.toml").read_text())
    assert python
    assert rust
    assert f"Python {python[1]} or newer" in readme
    assert f"Rust toolchain ({rust[1]} or newer)" in readme


def test_every_dependency_has_a_reason() -> None:
    text = (ROOT / "docs" / "dependencies.md").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    lists = re.search(r"^dependencies = .*?^\[project.scripts\]", project, re.M | re.S)
    assert lists
    python = set(re.findall(r'"([\w-]+)(?:\[[\w,]+\])?[<>=]', lists[0])) - {"braidlog"}
    cargo = (ROOT / "Cargo.toml").read_text().split("[workspace.dependencies]")[1]
    rust = set(re.findall(r"^([\w-]+) = ", cargo.split("\n[")[0], re.M))
    named = {
        name.strip()
        for line in text.splitlines()
        if line.startswith("| ")
        for name in line.split("|")[1].split(",")
    }
    mute = (python | rust) - {"braidlog-core"} - named
    assert mute == set(), "say in a row of docs/dependencies.md why each is there"


def test_every_command_is_shown() -> None:
    texts = "".join(p.read_text() for p in [ROOT / "README.md", *OPERATING.glob("*")])
    assert isinstance(main, click.Group)
    shown = set(re.findall(r"braidlog (\w+)", texts))
    hidden = set(main.list_commands(click.Context(main))) - shown
    assert hidden == set(), "show each in README.md or a page of docs/operating"


def test_public_names_are_documented() -> None:
    texts = "".join(p.read_text() for p in (ROOT / "docs").glob("**/*.md"))
    texts += (ROOT / "README.md").read_text()
    public = [
        name
        for kind in (braidlog.Log, braidlog.Cursor)
        for name in vars(kind)
        if not name.startswith("_")
    ]
    unknown = [name for name in public if not re.search(rf"\b{name}\b", texts)]
    assert unknown == [], "name each in a page of docs"
