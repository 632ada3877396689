"""The bank of the tests, over any state: SQL or a keyed table in a database."""

from __future__ import annotations

from typing import Any

from braidlog.app import Abort, Application, Context, keyed_table

SCHEMA = "CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)"

KEYED = keyed_table("account")


def read(state: Any, account: int) -> int:
    if hasattr(state, "execute"):
        if "account" in state.keyed:
            return int(state.table("account").get(account, 0))
        sql = "SELECT balance FROM account WHERE id = ?"
        return int(state.value(sql, (account,)) or 0)
    return int(state.get(account, 0))


def write(state: Any, account: int, balance: int) -> None:
    if hasattr(state, "execute"):
        if "account" in state.keyed:
            state.table("account").put(account, balance)
            return
        sql = "INSERT OR REPLACE INTO account VALUES (?, ?)"
        state.execute(sql, (account, balance))
    else:
        state[account] = balance


def total_of(state: Any) -> int:
    if "account" in state.keyed:
        return sum(balance for _, balance in state.table("account").scan())
    return int(state.value("SELECT coalesce(sum(balance), 0) FROM account"))


def make_bank(**options: Any) -> Application:
    bank = Application("bank", **{"partitions": 3, "schema": SCHEMA, **options})

    @bank.procedure(key="account")
    def deposit(ctx: Context, account: int, amount: int) -> int:
        balance = read(ctx.state, account) + amount
        write(ctx.state, account, balance)
        return balance

    @bank.procedure(partitions=lambda source, target, amount: [source, target])
    def transfer(ctx: Context, source: int, target: int, amount: int) -> list[int]:
        left = read(ctx.on(source), source) - amount
        write(ctx.on(source), source, left)
        if left < 0:
            raise Abort("no funds")
        write(ctx.on(target), target, read(ctx.on(target), target) + amount)
        return [left, read(ctx.on(target), target)]

    @bank.procedure(key="account")
    def lottery(ctx: Context, account: int) -> list[Any]:
        won = ctx.random.randint(1, 100)
        write(ctx.state, account, read(ctx.state, account) + won)
        return [won, ctx.now, str(ctx.uuid())]

    @bank.procedure(key="account")
    def explode(ctx: Context, account: int) -> None:
        write(ctx.state, account, -1)
        raise KeyError(account)

    @bank.procedure(key="account", effects=True)
    def interest(ctx: Context, account: int) -> int:
        balance = read(ctx.state, account)
        write(ctx.state, account, balance * 2)
        return balance * 2

    @bank.procedure(read_only=True, key="account")
    def balance(ctx: Context, account: int) -> int:
        return read(ctx.state, account)

    @bank.procedure(read_only=True, multi=True)
    def total(ctx: Context) -> int:
        return sum(total_of(state) for state in ctx.partitions.values())

    return bank
