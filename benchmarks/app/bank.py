"""The bank that is measured, after TPC-B: as procedures, and as plain SQLite."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw

from benchmarks.app.plan import Plan
from benchmarks.timing import Figures, rate
from braidlog.app import Application, Context, Host
from braidlog.app.errors import BusyError

ACCOUNTS = 10_000
TELLERS = 100
SCHEMA = """
CREATE TABLE branch(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
CREATE TABLE teller(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
CREATE TABLE history(id INTEGER PRIMARY KEY, account, teller, amount, time);
"""
FILL = (
    "INSERT INTO branch VALUES (1, 0)",
    (
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n"
        f" WHERE i < {TELLERS - 1}) INSERT INTO teller SELECT i, 0 FROM n"
    ),
    (
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n"
        f" WHERE i < {ACCOUNTS - 1}) INSERT INTO account SELECT i, 0 FROM n"
    ),
)
ACCOUNT = "UPDATE account SET balance = balance + ? WHERE id = ? RETURNING balance"
TELLER = "UPDATE teller SET balance = balance + ? WHERE id = ?"
BRANCH = "UPDATE branch SET balance = balance + ? WHERE id = 1"
HISTORY = "INSERT INTO history(account, teller, amount, time) VALUES (?, ?, ?, ?)"
MANY = "UPDATE account SET balance = balance + ?3 WHERE id >= ?1 AND id < ?1 + ?2"

bank = Application("bank", partitions=1, schema=SCHEMA)


@bank.procedure
def fill(ctx: Context) -> None:
    """Create everybody."""
    for statement in FILL:
        ctx.execute(statement)


@bank.procedure
def move(ctx: Context, account: int, teller: int, amount: int) -> int:
    """Do one transaction of TPC-B."""
    balance: int = ctx.execute(ACCOUNT, (amount, account))[0][0]
    ctx.execute(TELLER, (amount, teller))
    ctx.execute(BRANCH, (amount,))
    ctx.execute(HISTORY, (account, teller, amount, ctx.now))
    return balance


@bank.procedure
def raise_many(ctx: Context, first: int, count: int, amount: int) -> None:
    """Change many rows."""
    ctx.execute(MANY, (first, count, amount))


@bank.procedure(effects=True)
def raise_many_effects(ctx: Context, first: int, count: int, amount: int) -> None:
    """Change many rows, which are logged."""
    ctx.execute(MANY, (first, count, amount))


def moves(seed: int) -> Iterator[tuple[int, int, int]]:
    """Give arguments for ever."""
    numbers = random.Random(seed)
    while True:
        yield (
            numbers.randrange(ACCOUNTS),
            numbers.randrange(TELLERS),
            numbers.randrange(-100, 100),
        )


def concurrent(
    plan: Plan, call: Callable[[int, int, int], object], seed: int = 0
) -> Figures:
    """Measure calls of many threads, each of which waits for its answer."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        arguments = moves(plan.seed + seed + number)
        try:
            for _ in range(plan.calls_per_caller):
                call(*next(arguments))
        except BaseException as error:
            failures.append(error)

    def everybody() -> int:
        threads = [
            threading.Thread(target=work, args=(number,))
            for number in range(plan.callers)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return plan.callers * plan.calls_per_caller

    before = time.process_time()
    figures = rate(everybody, 0)
    spent = time.process_time() - before
    return {**figures, "per_cpu_second": plan.callers * plan.calls_per_caller / spent}


def make_log(plan: Plan, path: Path, commands: int) -> None:
    """Write the log and the state of so many commands, pipelined."""
    arguments = moves(plan.seed)
    with bank.open(path) as host:
        host.call("fill")
        for _ in range(commands):
            submit(host, *next(arguments))
        host.call("move", 1, 1, 1)


def submit(host: Host, *arguments: Any) -> None:
    """Submit a move, as soon as the host takes it."""
    while True:
        with suppress(BusyError):
            host.submit("move", *arguments)
            return
        time.sleep(0.001)


class Plain:
    """The same bank on SQLite alone: WAL, each commit synced."""

    def __init__(self, path: Path, *, shared: bool) -> None:
        """Create the tables; ``shared``: one connection for all threads, in turns."""
        self._path = path
        self._shared = shared
        self._local = threading.local()
        self._turn = threading.Lock()
        self._connections: list[apsw.Connection] = []
        self._one = self._connect()
        self._one.execute(SCHEMA)
        for statement in FILL:
            self._one.execute(statement)

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self._path))
        connection.set_busy_timeout(60_000)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        self._connections.append(connection)
        return connection

    def move(self, account: int, teller: int, amount: int) -> int:
        """Do one transaction, durable on return."""
        if self._shared:
            with self._turn:
                return self._move(self._one, account, teller, amount)
        if not hasattr(self._local, "connection"):
            self._local.connection = self._connect()
        return self._move(self._local.connection, account, teller, amount)

    def _move(
        self, connection: apsw.Connection, account: int, teller: int, amount: int
    ) -> int:
        connection.execute("BEGIN IMMEDIATE")
        rows: list[Any] = connection.execute(ACCOUNT, (amount, account)).fetchall()
        connection.execute(TELLER, (amount, teller))
        connection.execute(BRANCH, (amount,))
        connection.execute(HISTORY, (account, teller, amount, 0))
        connection.execute("COMMIT")
        return int(rows[0][0])

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.close()
