"""Hosts of tables in the simulation: fixed seeds, and planted bugs that are found."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from sim.faults import Storm
from sim.scenario import Outcome, run_seed
from sim.tables.balance import BalanceScenario
from sim.tables.engine import MemoryTable
from sim.tables.native import NativeTableScenario
from sim.tables.scenario import TableScenario

from braidlog.metarepo.leader.hosting import _move
from braidlog.node.tables.host import HostState, TableHost
from braidlog.node.tables.hosts import Hosts
from braidlog.node.tables.tables import Tables
from braidlog.wire.commands import PlaceHosts
from sim import __main__ as command

TRIED_MAX = 40


def run(
    seed: int,
    storm: str,
    out: io.StringIO | None = None,
    scenario: type[TableScenario] = TableScenario,
) -> Outcome:
    chosen: Storm = replace(command.storm_of("tables", storm), seconds=3.0)
    return run_seed("tables", scenario, seed, chosen, out=out)


@pytest.mark.parametrize(
    ("seed", "storm"),
    [(1, "calm"), (4, "crashes"), (8, "all"), (5, "pauses"), (13, "partitions")],
)
def test_a_table_equals_the_fold_of_its_log(seed: int, storm: str) -> None:
    outcome = run(seed, storm)
    assert outcome.passed, outcome.error


@pytest.mark.parametrize(("seed", "storm"), [(41017, "full"), (41044, "disks")])
def test_a_host_that_is_damaged_before_it_hears_that_it_joined(
    seed: int, storm: str
) -> None:
    """Readers are sent on: another host is whole."""
    chosen = command.storm_of("tables", storm)
    outcome = run_seed("tables", TableScenario, seed, chosen)
    assert outcome.passed, outcome.error


@pytest.mark.parametrize(
    ("seed", "storm"),
    [(1, "calm"), (4, "crashes"), (8, "all"), (5, "pauses"), (13, "partitions")],
)
def test_native_tables_equal_the_fold_of_their_log(seed: int, storm: str) -> None:
    outcome = run(seed, storm, scenario=NativeTableScenario)
    assert outcome.passed, outcome.error


def test_a_node_that_is_slow_by_what_it_says_does_not_stop_its_leader() -> None:
    chosen = command.storm_of("native-tables", "deaf")
    outcome = run_seed("native-tables", NativeTableScenario, 41305, chosen)
    assert outcome.passed, outcome.error


@pytest.mark.parametrize(("seed", "storm"), [(1, "calm"), (2, "calm"), (3, "crashes")])
def test_tables_move_and_never_have_fewer_whole_hosts(seed: int, storm: str) -> None:
    outcome = run(seed, storm, scenario=BalanceScenario)
    assert outcome.passed, outcome.error


def test_a_move_that_gives_up_a_host_first_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hasty(*given: Any) -> PlaceHosts | None:
        move = _move(*given)
        if move is None:
            return None
        return msgspec.structs.replace(move, hosts=move.hosts[1:])

    monkeypatch.setattr("braidlog.metarepo.leader.hosting._move", hasty)
    outcomes = (run(seed, "calm", scenario=BalanceScenario) for seed in range(1, 20))
    assert any("hosts have all of" in each.error for each in outcomes)


@pytest.mark.parametrize(
    "scenario", [TableScenario, NativeTableScenario, BalanceScenario]
)
def test_a_seed_run_twice_gives_the_same_trace(scenario: type[TableScenario]) -> None:
    traces = [io.StringIO(), io.StringIO()]
    outcomes = [run(4, "all", trace, scenario) for trace in traces]
    assert outcomes[0] == outcomes[1]
    assert traces[0].getvalue() == traces[1].getvalue() != ""


def first_failure(storms: Sequence[str], known: int) -> str:
    """Return what the first seed says that fails, the known one first; or nothing."""
    for seed in (known, *range(1, TRIED_MAX + 1)):
        outcome = run(seed, storms[seed % len(storms)])
        if not outcome.passed:
            return outcome.error
    return ""


async def _serves_at_once(host: Any) -> None:
    """Serve what was found, however old it is."""
    if host.state is not HostState.SERVING:
        if not host.joined:
            await host._settle(joined=True)
        host._enter(HostState.SERVING)


def _heeds_no_after(tables: Any, request: Any, message: Any, now: float) -> None:
    host = tables._hosts.host(message.table)
    assert host.table is not None
    tables._answer(request, tables._carry_out(host, message, request.session))


def _forgets_a_run(table: Any) -> bool:
    """Say that everything is in files, and write nothing."""
    head = table._head()
    head["flushed"] = table.applied
    table._disk.tables[table._id]["CURRENT"] = pickle.dumps(head)
    table.flushed, table._fresh = table.applied, []
    return True


async def _keeps_files(hosts: Any, table: bytes) -> None:
    """Leave the files of a table that was dropped."""


# Where, what, by which storms and by which seed it is found, and what that says.
PLANTED: list[tuple[type, str, Callable[..., Any], Sequence[str], int, str]] = [
    (
        TableHost,
        "_caught_up",
        _serves_at_once,
        ("crashes", "all"),
        124,
        "answers as of",
    ),
    (Tables, "_read", _heeds_no_after, ("calm",), 17, "was asked for"),
    (MemoryTable, "flush", _forgets_a_run, ("crashes",), 2, "should have found"),
    (Hosts, "_trash", _keeps_files, ("calm",), 1, "do not come to rest"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "name", "bug", "storms", "seed", "says"),
    PLANTED,
    ids=[each[2].__name__.strip("_") for each in PLANTED],
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch,
    where: type,
    name: str,
    bug: Callable[..., Any],
    storms: Sequence[str],
    seed: int,
    says: str,
) -> None:
    monkeypatch.setattr(where, name, bug)
    error = first_failure(storms, seed)
    assert says in error, error or "no seed fails"
