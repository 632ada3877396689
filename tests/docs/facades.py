"""The table of facades in the documents, made from the code.

``PYTHONPATH=tests python -m docs.facades`` writes it into docs/architecture.md.
"""

from __future__ import annotations

import inspect
import re

from braidlog import AsyncCursor, AsyncLog, AsyncStore, Cursor, Log, Store
from braidlog.client import AsyncClient, AsyncClusterLog, Client, ClusterLog
from braidlog.client.blocking import ClusterCursor
from docs.documents import ROOT

ARCHITECTURE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- facades: begin -->\n", "<!-- facades: end -->\n"
FACADES: tuple[tuple[type, ...], ...] = (
    (Log, AsyncLog, ClusterLog, AsyncClusterLog),
    (Store, AsyncStore, Client, AsyncClient),
    (Cursor, AsyncCursor, ClusterCursor),
)


def attributes(kind: type) -> set[str]:
    """Return the public attributes that an instance sets itself."""
    return set(re.findall(r"self\.([a-z]\w*)\b.* = ", inspect.getsource(kind.__init__)))  # type: ignore[misc]


def public(kind: type) -> set[str]:
    """Return the public names of an instance."""
    return attributes(kind) | {name for name in dir(kind) if not name.startswith("_")}


def how(kind: type, name: str) -> str:
    """Return how a name of a facade is used; nothing if it has none."""
    found = getattr(kind, name, None)
    if inspect.isasyncgenfunction(found):
        return "async for"
    if inspect.iscoroutinefunction(found):
        return "await"
    if callable(found):
        return "call"
    return "value" if name in public(kind) else ""


def table(kinds: tuple[type, ...]) -> str:
    """Return the table of some facades, by name of the call."""
    rows = [["", *(f"`{kind.__name__}`" for kind in kinds)], ["---"] * (len(kinds) + 1)]
    rows += [
        [f"`{name}`", *(how(kind, name) for kind in kinds)]
        for name in sorted(set().union(*map(public, kinds)))
    ]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def tables() -> str:
    """Return all tables."""
    return "\n" + "\n".join(table(kinds) for kinds in FACADES) + "\n"


def main() -> None:
    """Write the tables where they belong."""
    before, _, rest = ARCHITECTURE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    ARCHITECTURE.write_text(before + BEGIN + tables() + END + after)


if __name__ == "__main__":
    main()
