"""Whose an id is, and how it comes back after its directory was lost."""

from __future__ import annotations

import pytest

from braidlog.errors import InvalidArgumentError, NodeIdentityError, NotReadyError
from braidlog.metarepo.machine.nodes import require_identity
from braidlog.wire import commands
from braidlog.wire.commands import AdmitNode, ReadmitNode, RegisterNode
from braidlog.wire.messages import Recorded, Report, StreamStatus
from braidlog.wire.results import Done, Refused
from unit.metarepo.bench import Bench
from unit.metarepo.test_group import Lone, told

OLD, NEW = b"a" * 16, b"b" * 16


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    for node in (1, 2, 3):
        made.do(RegisterNode(node, f"host:{node}", 1, bytes([node]) * 16))
    made.do(RegisterNode(4, "host:4", 5, OLD))
    return made


def test_an_id_belongs_to_the_directory_that_had_it_first(bench: Bench) -> None:
    refused = bench.refused(RegisterNode(4, "host:4", 6, NEW))
    error = refused.error()
    assert isinstance(error, NodeIdentityError)
    assert error.outcome == "not_stored"
    assert OLD.hex() in error.message
    assert NEW.hex() in error.message
    assert "braidlog node readmit" in str(error)
    bench.refused(RegisterNode(4, "host:4", 6))
    assert bench.do(RegisterNode(4, "host:4", 6, OLD)) == Done()


def test_a_node_of_an_earlier_version_gets_its_identity_once(bench: Bench) -> None:
    bench.do(RegisterNode(5, "host:5", 1))
    assert bench.do(RegisterNode(5, "host:5", 2, NEW)) == Done()
    assert bench.repository.state.nodes[5].bound == bench.repository.index
    bench.refused(RegisterNode(5, "host:5", 3, OLD))


def test_an_id_comes_back_when_nothing_relies_on_it(bench: Bench) -> None:
    bench.create((1, 2, 4), replication=3)
    assert bench.do(ReadmitNode(4, votes=True)) == Done()
    assert bench.do(ReadmitNode(4)) == Done()
    known = bench.repository.state.nodes[4]
    with pytest.raises(NodeIdentityError, match="readmitted"):
        require_identity(known, OLD)
    # A stream still counts on what it held.
    assert bench.refused(AdmitNode(4)).code == NotReadyError.code
    without = commands.Reconfigure(
        1, 1, (1, 2), (), StreamStatus.RUNNING, entered=(1, 2)
    )
    assert not isinstance(bench.do(without), Refused)
    assert bench.do(AdmitNode(4)) == Done()
    # Its starts count from 1 again, and the lost directory stays out.
    bench.refused(RegisterNode(4, "host:4", 6, OLD))
    assert bench.do(RegisterNode(4, "host:4", 1, NEW)) == Done()
    assert (known.identity, known.incarnation, known.voter) == (NEW, 1, True)
    bench.refused(RegisterNode(4, "host:4", 7, OLD))


def test_the_last_that_holds_everything_is_not_given_up(bench: Bench) -> None:
    bench.create((4,), replication=1)
    refused = bench.refused(ReadmitNode(4))
    assert refused.code == InvalidArgumentError.code
    assert "delete their logs" in refused.message


def test_a_node_that_is_not_listed_as_failed_is_not_admitted(bench: Bench) -> None:
    bench.do(commands.ChangeFaults(0, 0, joined=(1, 2, 3, 4)))
    bench.do(commands.ChangeFaults(1, 0, viable=(1, 2, 3, 4)))
    bench.do(ReadmitNode(4))
    bench.refused(AdmitNode(4))
    assert bench.do(commands.ChangeFaults(1, 0, failed=(4,))) == Done()
    assert bench.do(AdmitNode(4)) == Done()


def test_only_a_dead_node_is_given_up_and_then_forgotten() -> None:
    lone = Lone().prepared()
    lone.result(RegisterNode(2, "host:2", 7, OLD))
    lone.group.report(Report(2, 7, 1, True, ()), lone.now)
    answer = lone.do(ReadmitNode(2))
    assert answer is not None
    assert isinstance(answer.error, InvalidArgumentError)
    for _ in range(40):
        lone.wait(0.05)
        lone.tell(told(1))
    assert lone.result(ReadmitNode(2)) == Done()
    lone.wait(0.3)
    known = lone.group.repository.state.nodes[2]
    assert (known.readmitting, known.former) == (False, (OLD,))
    assert lone.group.leadership is not None
    assert 2 not in lone.group.leadership.collector.reports
    # A report of the first start of the next directory is news.
    lone.result(RegisterNode(2, "host:2", 1, NEW))
    lone.group.report(Report(2, 1, 1, True, ()), lone.now)
    assert lone.group.leadership.collector.reports[2].incarnation == 1


def test_what_a_lost_directory_recorded_is_forgotten() -> None:
    lone = Lone().prepared()
    assert lone.group.leadership is not None
    guard = lone.group.leadership.fault_recording
    guard.take(Recorded(2, 1, 9, True))
    guard.forget(2)
    guard.take(Recorded(2, 1, 3, False))
    assert guard._recorded[2] == Recorded(2, 1, 3, False)
