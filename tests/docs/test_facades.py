"""The table of facades in the documents is that of the code."""

from braidlog import AsyncCursor, AsyncLog, Log, Store
from docs.facades import ARCHITECTURE, BEGIN, END, how, tables


def test_the_table_is_that_of_the_code() -> None:
    _, begins, rest = ARCHITECTURE.read_text().partition(BEGIN)
    found, ends, _ = rest.partition(END)
    assert begins
    assert ends
    assert found == tables(), "run: PYTHONPATH=tests python -m docs.facades"


def test_the_table_says_how_a_name_is_used() -> None:
    assert how(Log, "append") == how(AsyncLog, "submit") == "call"
    assert how(AsyncLog, "append") == how(AsyncCursor, "commit") == "await"
    assert how(AsyncLog, "read") == "async for"
    assert how(Log, "end") == how(Store, "path") == "value"
    assert how(AsyncLog, "submit_many") == ""
