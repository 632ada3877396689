"""The same names everywhere; what an implementation does not have, and why."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from braidlog import AsyncCursor, AsyncLog, AsyncStore, Cursor, Log, Store
from braidlog.client import AsyncClient, AsyncClusterLog, Client, ClusterLog
from braidlog.client.blocking import ClusterCursor

FILES = "about the files of one directory; a log of a cluster has them on its nodes"
NODE = "each node of a cluster does it by itself"
PENDING = "a `Pending` is waited for by a thread; a loop has `asyncio.Future`"
OPERATOR = "an operator cannot be awaited; the method of the same purpose is"
BLOCKING = "is asked of `.blocking`: it waits for nothing"
OPERATORS = (
    "__len__",
    "__arrow_c_stream__",
    "__arrow_c_schema__",
)
ABSENT: dict[type, dict[str, str]] = {
    AsyncLog: {
        **dict.fromkeys(("submit_many", "submit_arrow"), PENDING),
        **dict.fromkeys(OPERATORS, OPERATOR),
    },
    AsyncClusterLog: {
        **dict.fromkeys(("segments", "stats"), FILES),
        "apply_retention": NODE,
        **dict.fromkeys(("submit_many", "submit_arrow"), PENDING),
        **dict.fromkeys(OPERATORS, OPERATOR),
    },
    ClusterLog: {
        **dict.fromkeys(("segments", "stats"), FILES),
        "apply_retention": NODE,
        **dict.fromkeys(("submit", "submit_arrow"), PENDING),
    },
    AsyncStore: dict.fromkeys(("closed", "report"), BLOCKING),
    AsyncClient: {
        **dict.fromkeys(("closed", "provision", "report", "stats"), FILES),
        **dict.fromkeys(("maintain", "sync"), NODE),
    },
    Client: {
        **dict.fromkeys(("closed", "provision", "report", "stats"), FILES),
        **dict.fromkeys(("maintain", "sync"), NODE),
    },
    AsyncCursor: {},
    ClusterCursor: {},
}
MODELS = {"Log": Log, "Store": Store, "Client": Store, "Cursor": Cursor}
OTHER_ARGUMENTS: dict[tuple[str, str], str] = {
    ("AsyncStore", "close"): "`asyncio.timeout` around it does it",
    ("AsyncClient", "close"): "has nothing to wait for: appends fail, and say so",
    ("Client", "close"): "as `AsyncClient.close`",
    ("AsyncClient", "create_table"): "a table of a cluster begins where its log does",
    ("Client", "create_table"): "as `AsyncClient.create_table`",
}
# Declared holes are made by the repair of one directory.
OF_A_DIRECTORY = {"skip_holes"}
# An attribute of the instance, or one that only some logs need.
INSTANCE = {"name"}
# Special names that every class has, or that `__init__` and annotations leave.
EVERYWHERE = {"__new__", "__init__", "__doc__"}
AWAITED = {"__iter__": "__aiter__", "__enter__": "__aenter__", "__exit__": "__aexit__"}


def model_of(kind: type) -> type:
    return next(m for end, m in MODELS.items() if kind.__name__.endswith(end))


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")} - INSTANCE


def special_names(kind: type) -> set[str]:
    """Return the special methods that the classes of the package define."""
    ours = [each for each in kind.__mro__ if each.__module__.startswith("braidlog")]
    return {
        name
        for each in ours
        for name, value in vars(each).items()
        if name.startswith("__") and (callable(value) or value is None)
    } - EVERYWHERE


@pytest.mark.parametrize("kind", ABSENT, ids=lambda kind: kind.__name__)
def test_every_name_is_there_or_has_a_reason(kind: type) -> None:
    special = special_names(kind)
    found = special | {sync for sync, awaited in AWAITED.items() if awaited in special}
    wanted = names(model_of(kind)) | special_names(model_of(kind))
    missing, excused = wanted - names(kind) - found, set(ABSENT[kind])
    assert missing == excused, (
        f"{kind.__name__} lacks {sorted(missing - excused)}: add them to "
        f"{inspect.getsourcefile(kind)}, or give the reason in ABSENT above. It has "
        f"{sorted(excused - missing)}: remove them from ABSENT"
    )


@pytest.mark.parametrize("kind", ABSENT, ids=lambda kind: kind.__name__)
def test_arguments_are_the_same(kind: type) -> None:
    """An implementation may take more, such as a timeout; never less or renamed."""
    differ = {}
    for name in names(model_of(kind)) & names(kind):
        theirs, ours = getattr(model_of(kind), name), getattr(kind, name)
        if inspect.isfunction(theirs) and not _takes_anything(ours):
            missing = _arguments(theirs) - _arguments(ours) - OF_A_DIRECTORY
            if missing and (kind.__name__, name) not in OTHER_ARGUMENTS:
                differ[name] = missing
    assert differ == {}, (
        f"{kind.__name__} does not take these arguments of {model_of(kind).__name__}: "
        "add them, or give the reason in OTHER_ARGUMENTS above"
    )


# Gives a future at once: what is submitted so keeps its order. The other gives what an
# `async with` is for.
NOT_AWAITED = {"submit", "ddl"}


@pytest.mark.parametrize(
    "kind",
    [AsyncLog, AsyncClusterLog, AsyncCursor, AsyncStore, AsyncClient],
    ids=lambda kind: kind.__name__,
)
def test_with_asyncio_every_call_is_awaited(kind: type) -> None:
    calls = {
        name: call
        for name in names(kind) - NOT_AWAITED
        if callable(call := getattr(kind, name))
    }
    assert len(calls) > 2
    assert [
        name
        for name, call in calls.items()
        if not (inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call))
    ] == [], "make them `async def`; if they must answer at once: NOT_AWAITED"


def _arguments(function: Any) -> set[str]:
    return set(inspect.signature(function).parameters)


def _takes_anything(function: Any) -> bool:
    kinds = {p.kind for p in inspect.signature(function).parameters.values()}
    return inspect.Parameter.VAR_KEYWORD in kinds
