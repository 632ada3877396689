"""The application under test: accounts in several partitions, and what it may do."""

from __future__ import annotations

from typing import Any

from braidlog.app import Abort, Application, Context

__all__ = ["ACCOUNTS", "NAME", "make_bank"]

NAME = "bank"
ACCOUNTS = 6
_SCHEMA = "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)"


def _read(state: Any, account: int) -> int:
    sql = "SELECT balance FROM account WHERE id = ?"
    return int(state.value(sql, (account,)) or 0)


def _write(state: Any, account: int, balance: int) -> None:
    sql = "INSERT OR REPLACE INTO account VALUES (?, ?)"
    state.execute(sql, (account, balance))


def make_bank(partitions: int, results_kept: int) -> Application:
    """Return the bank."""
    bank = Application(
        NAME, partitions=partitions, schema=_SCHEMA, results_kept=results_kept
    )

    @bank.procedure(key="account")
    def deposit(ctx: Context, account: int, amount: int) -> int:
        balance = _read(ctx.state, account) + amount
        _write(ctx.state, account, balance)
        return balance

    @bank.procedure(partitions=lambda source, target, amount: [source, target])
    def transfer(ctx: Context, source: int, target: int, amount: int) -> list[int]:
        left = _read(ctx.on(source), source) - amount
        _write(ctx.on(source), source, left)
        if left < 0:
            raise Abort("no funds")
        there = _read(ctx.on(target), target) + amount
        _write(ctx.on(target), target, there)
        return [left, there]

    @bank.procedure(key="account", effects=True)
    def interest(ctx: Context, account: int) -> int:
        balance = _read(ctx.state, account)
        _write(ctx.state, account, balance + 1)
        return balance + 1

    @bank.procedure(read_only=True, key="account")
    def balance(ctx: Context, account: int) -> int:
        return _read(ctx.state, account)

    @bank.procedure(read_only=True, multi=True)
    def total(ctx: Context) -> int:
        sql = "SELECT coalesce(sum(balance), 0) FROM account"
        return sum(state.value(sql) for state in ctx.partitions.values())

    return bank
