"""A bank after TPC-B: accounts, tellers and branches, and money that is conserved.

Tellers of one branch move money of accounts of any branch. At the end the program
deletes the state and computes it again from the log.

    python examples/bank.py [directory]
"""

import random
import shutil
import sys
import tempfile
from pathlib import Path

from braidlog.app import Abort, Application, Context

BRANCHES, TELLERS, ACCOUNTS = 4, 10, 100  # Of each branch.

bank = Application(
    "bank",
    partitions=4,
    schema="""
    CREATE TABLE branch(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
    CREATE TABLE teller(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
    CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
    CREATE TABLE history(id INTEGER PRIMARY KEY, account, teller, amount, time);
    """,
)


@bank.procedure(key="branch")
def found_branch(ctx: Context, branch: int, deposit: int) -> None:
    """Create a branch with its tellers and accounts."""
    ctx.execute("INSERT INTO branch VALUES (?, ?)", (branch, deposit * ACCOUNTS))
    for teller in range(TELLERS):
        ctx.execute("INSERT INTO teller VALUES (?, 0)", (branch * TELLERS + teller,))
    for account in range(ACCOUNTS):
        number = branch * ACCOUNTS + account
        ctx.execute("INSERT INTO account VALUES (?, ?)", (number, deposit))


@bank.procedure(
    partitions=lambda source, target, teller, amount: [
        source // ACCOUNTS,
        target // ACCOUNTS,
        teller // TELLERS,
    ]
)
def move(ctx: Context, source: int, target: int, teller: int, amount: int) -> int:
    """Move money between accounts; the branch of the teller records the move."""
    for account, change in ((source, -amount), (target, amount)):
        branch = account // ACCOUNTS
        db = ctx.on(branch)
        add = "UPDATE {} SET balance = balance + ? WHERE id = ? RETURNING balance"
        left = db.value(add.format("account"), (change, account))
        if left < 0:
            raise Abort("no funds")
        db.execute(add.format("branch"), (change, branch))
    db = ctx.on(teller // TELLERS)
    db.execute("UPDATE teller SET balance = balance + ? WHERE id = ?", (amount, teller))
    row = (source, teller, amount, ctx.now)
    db.execute(
        "INSERT INTO history(account, teller, amount, time) VALUES (?, ?, ?, ?)", row
    )
    return int(
        ctx.on(source // ACCOUNTS).value(
            "SELECT balance FROM account WHERE id = ?", (source,)
        )
    )


@bank.procedure(read_only=True, multi=True)
def totals(ctx: Context) -> list[int]:
    """Return the money of all accounts, that of all branches, and the moves."""
    queries = (
        "SELECT coalesce(sum(balance), 0) FROM account",
        "SELECT coalesce(sum(balance), 0) FROM branch",
        "SELECT count(*) FROM history",
    )
    return [sum(db.value(q) for db in ctx.partitions.values()) for q in queries]


def main(directory: Path) -> None:
    """Move money, then compute the state again from the log."""
    numbers = random.Random(1)
    with bank.open(directory) as host:
        for branch in range(BRANCHES):
            host.call("found_branch", branch, 100)
        calls = []
        for _ in range(500):
            source, target = (numbers.randrange(BRANCHES * ACCOUNTS) for _ in "st")
            teller = numbers.randrange(BRANCHES * TELLERS)
            amount = numbers.randint(1, 60)
            calls.append(host.submit("move", source, target, teller, amount))
        refused = 0
        for call in calls:
            try:
                call.result()
            except Abort:
                refused += 1
        accounts, branches, moves = host.call("totals")
        print(f"{moves} moves, {refused} refused")
        print(f"accounts have {accounts}, branches {branches}")
        hashes = host.hashes()[1]
    shutil.rmtree(directory / "state")
    with bank.open(directory) as host:
        same = host.hashes()[1] == hashes
        print("made again from the log:", "the same" if same else "something else")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
