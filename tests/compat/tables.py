"""The changes of tables in catalog frames, by `docs/formats.md` alone."""

from dataclasses import dataclass
from typing import Any, TypeAlias

from compat.layouts import LAYOUTS

_KINDS = {
    1: "table_create",
    2: "table_drop",
    3: "table_rename",
    4: "table_build",
    5: "table_activate",
    6: "table_abort",
    7: "table_unindex",
    8: "table_replace",
    9: "table_options",
}

Cursor: TypeAlias = tuple[int, str, dict[str, Any] | None]
"""The log, the name, and what is set; None if the cursor is gone."""


@dataclass
class Table:
    """One table: its entry, and of each index its tree, field, state and position."""

    entry: dict[str, Any]
    indexes: dict[str, list[Any]]


def table_of(parsed: dict[str, Any]) -> Table:
    """Return a table of a preamble."""
    indexes = {}
    for each in parsed["indexes"]:
        index = each["index"]
        state = [index["tree_id"], index["field"], each["state"], each["position"]]
        indexes[index["name"]] = state
    return Table(parsed["table"], indexes)


def change(tables: dict[int, Table], data: bytes) -> list[Cursor]:
    """Apply one change; return what becomes of cursors."""
    name = _KINDS[data[0]]
    parsed = LAYOUTS.parse(name, data)
    assert parsed["change"] == data[0]
    if name == "table_create":
        entry = parsed["table"]
        assert entry["table_id"] not in tables
        assert entry["name"] not in {each.entry["name"] for each in tables.values()}
        indexes = {
            index["name"]: [index["tree_id"], index["field"], 1, entry["start"]]
            for index in parsed["indexes"]
        }
        tables[entry["table_id"]] = Table(entry, indexes)
        return [_pin(entry)]
    if name == "table_drop":
        return [_unpin(tables.pop(parsed["table_id"]).entry)]
    table = tables[parsed["table_id"]]
    if name == "table_replace":
        return _replace(tables, table, parsed)
    if name in ("table_rename", "table_options"):
        table.entry |= {k: v for k, v in parsed.items() if k in ("name", "options")}
    elif name == "table_build":
        index = parsed["index"]
        assert index["name"] not in table.indexes
        state = [index["tree_id"], index["field"], 0, parsed["position"]]
        table.indexes[index["name"]] = state
    else:
        _index(table, name, parsed)
    return []


def _index(table: Table, name: str, parsed: dict[str, Any]) -> None:
    [index] = [n for n, i in table.indexes.items() if i[0] == parsed["tree_id"]]
    if name != "table_unindex":
        assert table.indexes[index][2] == 0
    if name == "table_activate":
        table.indexes[index][2] = 1
    else:
        del table.indexes[index]


def _replace(
    tables: dict[int, Table], table: Table, parsed: dict[str, Any]
) -> list[Cursor]:
    gone = _unpin(tables.pop(parsed["table_id"]).entry)
    new = {"table_id": parsed["new_id"], "start": parsed["start"]}
    table.entry |= new | {"primary_id": parsed["primary_id"]}
    for index, tree in zip(table.indexes.values(), parsed["trees"], strict=True):
        index[0], index[2:] = tree, [1, parsed["start"]]
    tables[parsed["new_id"]] = table
    return [gone, _pin(table.entry)]


def _pin(entry: dict[str, Any]) -> Cursor:
    name = f"table:{entry['table_id']:032x}"
    cursor = {
        "name": name,
        "position": entry["start"],
        "pin": 1,
        "touched": entry["created"],
        "lease": 0,
    }
    return entry["log_id"], name, cursor


def _unpin(entry: dict[str, Any]) -> Cursor:
    return entry["log_id"], f"table:{entry['table_id']:032x}", None
