"""Procedures that differ at replay in ways which neither lint nor guard can see."""

from __future__ import annotations

from collections import Counter
from typing import Any

from braidlog.app import Abort, Application, Context

SCHEMA = "CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT)"
KINDS = {"list": list, "set": set}
COUNTS = Counter(["list"])  # Dicts are read-only for procedures, this is a Counter.


class Memory:
    """State of the process, which replay does not have."""

    seen: list[int] = []  # noqa: RUF012

    def note(self, x: int) -> int:
        self.seen.append(x)
        return len(self.seen)


class Plain:
    """Its repr has an address."""


def make() -> Application:
    app = Application("hazards", partitions=2, schema=SCHEMA)

    @app.procedure(key="x")
    def fine(ctx: Context, x: int) -> list[Any]:
        name = f"{x / 3}"
        ctx.execute("INSERT OR REPLACE INTO t VALUES (?, ?)", (x, name))
        if x < 0:
            raise Abort("negative")
        return [ctx.now, ctx.random.randint(1, 6), str(ctx.uuid()), x % 7 and 1 / x]

    @app.procedure(key="x")
    def hidden_order(ctx: Context, x: int, names: list[str]) -> list[str]:
        return [*KINDS["set"](names)]

    @app.procedure(key="x")
    def hidden_rows(ctx: Context, x: int, names: list[str]) -> None:
        for name in KINDS["set"](names):
            ctx.execute("INSERT INTO t(name) VALUES (?)", (name,))

    @app.procedure(key="x")
    def address(ctx: Context, x: int) -> str:
        return f"{Plain()}"

    @app.procedure(key="x")
    def remember(ctx: Context, x: int) -> int:
        return Memory().note(x)

    @app.procedure(key="x")
    def raise_address(ctx: Context, x: int) -> None:
        raise ValueError(f"{Plain()}")

    @app.procedure(key="x")
    def dict_of_set(ctx: Context, x: int, names: list[str]) -> list[str]:
        table = dict.fromkeys(KINDS["set"](names), 1)
        return list(table)

    @app.procedure(key="x")
    def runaway(ctx: Context, x: int) -> None:
        while True:
            ctx.row("SELECT id FROM t WHERE id = ?", (x,))

    @app.procedure(key="x", effects=True)
    def effects(ctx: Context, x: int) -> None:
        ctx.execute("INSERT INTO t VALUES (?, 'e')", (x,))

    return app


def make_in_memory() -> Application:
    """An application whose procedure changes a constant of its module."""
    app = Application("memory", partitions=1, schema=SCHEMA)

    @app.procedure
    def harmless(ctx: Context) -> int:
        return Setter().change()

    @app.procedure
    def reader(ctx: Context) -> int:
        return len(KINDS)

    return app


class Setter:
    """Changes a table of the module behind the back of the guard."""

    def change(self) -> int:
        # braidlog: allow(global-write) what the test is about
        COUNTS["tuple"] += 1
        return 1
