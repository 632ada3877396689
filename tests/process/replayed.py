"""Applications that the tests of replay run in processes of their own.

``wide`` moves money between any two partitions, ``near`` within one alone. With SLOWLY
in the environment each commit of a replay takes a moment, so that it can be killed.
"""

from __future__ import annotations

import contextlib
import os
import random
import time
from typing import Any

from braidlog.app import Abort, Application, Context, Host, ProcedureError
from braidlog.app.execution.executor import Executor
from braidlog.app.replay import run as replaying

__all__ = ["PARTITIONS", "fill", "near", "wide"]

PARTITIONS = 10
ACCOUNTS = 200
SCHEMA = """
CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
CREATE TABLE note(id INTEGER PRIMARY KEY, account INTEGER, text TEXT, time INTEGER);
"""
READ = "SELECT balance FROM account WHERE id = ?"
ADD = (
    "INSERT INTO account VALUES (?1, ?2)"
    " ON CONFLICT DO UPDATE SET balance = balance + ?2"
)


def make(name: str) -> Application:
    application = Application(name, partitions=PARTITIONS, schema=SCHEMA)

    @application.procedure(key="account")
    def pay(ctx: Context, account: int, amount: int) -> dict[str, Any]:
        ctx.execute(ADD, (account, amount))
        words = {"ä", "b", "ç", "İ", str(ctx.uuid())}
        note = (account, " ".join(sorted(words)), ctx.now)
        ctx.execute("INSERT INTO note(account, text, time) VALUES (?, ?, ?)", note)
        return {"balance": ctx.value(READ, (account,)), "mean": amount / 3}

    @application.procedure(key="account")
    def fail(ctx: Context, account: int) -> None:
        ctx.execute(ADD, (account, 1))
        raise ValueError(account)

    @application.procedure(partitions=lambda source, target, amount: [source, target])
    def move(ctx: Context, source: int, target: int, amount: int) -> None:
        if (ctx.on(source).value(READ, (source,)) or 0) < amount:
            raise Abort("no funds")
        ctx.on(source).execute(ADD, (source, -amount))
        ctx.on(target).execute(ADD, (target, amount))

    return application


wide, near = make("wide"), make("near")


def fill(host: Host, commands: int) -> None:
    """Call; in ``near`` only payments, which stay in their partitions."""
    numbers = random.Random(7)
    calls = []
    for _ in range(commands):
        one, two = numbers.sample(range(ACCOUNTS), 2)
        kind = numbers.randrange(10)
        if kind == 0:
            calls.append(host.submit("fail", one))
        elif kind < 4 and host.application is wide:
            calls.append(host.submit("move", one, two, numbers.randrange(60)))
        else:
            calls.append(host.submit("pay", one, numbers.randrange(100)))
    for call in calls:
        with contextlib.suppress(ProcedureError):
            call.result()


if os.environ.get("SLOWLY"):
    replaying._ROUND = 100  # type: ignore[misc]
    commit = Executor.commit

    def slowly(self: Executor, *, everywhere: bool = False) -> None:
        time.sleep(0.02)
        commit(self, everywhere=everywhere)

    Executor.commit = slowly  # type: ignore[method-assign]
