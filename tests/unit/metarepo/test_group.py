"""The group with one member: requests, answers, what nodes are told."""
# One file: one state machine: what each input comes to.

from __future__ import annotations

import msgspec
import pytest

from braidlog.errors import (
    InvalidArgumentError,
    LogInUseError,
    NotFoundError,
    OlderNodesError,
    TableCursorError,
    TablePinError,
    UnauthorizedError,
    UnavailableError,
)
from braidlog.faultlog.configuration import Configuration
from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.events import Event
from braidlog.metarepo.group import GroupEffects, MetadataMember
from braidlog.metarepo.leader.leadership import LOOK_SECONDS, takers
from braidlog.metarepo.leader.settings import GroupSettings
from braidlog.metarepo.machine.faults import first
from braidlog.metarepo.machine.state import State
from braidlog.metarepo.pending import Answer
from braidlog.raft import (
    Base,
    Entry,
    HardState,
    Membership,
    NotLeaderError,
    RaftConfig,
    Stored,
    codec,
)
from braidlog.raft.messages import Heartbeat
from braidlog.wire import commands
from braidlog.wire.commands import ChangeTables, Command
from braidlog.wire.messages import (
    FEATURES_OF_TABLES,
    Commit,
    Configure,
    Consensus,
    Faults,
    Feature,
    Recorded,
    Report,
    StreamInfo,
    StreamReport,
)
from braidlog.wire.results import Created, Done, Epoch, Trimmed, decode_result
from braidlog.wire.tables import (
    CreateIndex,
    CreateTable,
    DropTable,
    RenameTable,
    ReplaceTable,
)
from unit.metarepo.bench import LOG


class Lone:
    """A group of one, with a disk that is always in time."""

    def __init__(
        self,
        stored: Stored | None = None,
        *,
        lead: bool = True,
        fault_logs: bool = False,
        state_bytes_max: int = 1 << 20,
        requests_max: int = 4096,
    ) -> None:
        base = stored or Stored(Base(membership=Membership((1,))))
        raft = RaftConfig(id=1, incarnation=1, jitter=lambda: 0)
        settings = GroupSettings(
            cluster="test",
            fold_entries=20,
            fault_logs=fault_logs,
            state_bytes_max=state_bytes_max,
            requests_max=requests_max,
        )
        self.now = 0.0
        self.wall = 0
        self.group = MetadataMember(settings, raft, base, self.now)
        self.sent: list[object] = []
        self.answers: dict[int, Answer] = {}
        self.events: list[Event] = []
        self.base = base.base
        self.entries: list[Entry] = []
        self.hard = HardState()
        self.numbers = 0
        self.features: dict[int, Feature] = {}
        if lead:
            self.wait(2.0)
            assert self.group.leads

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            self.group.tick(self.now)
            self.run()

    def run(self) -> None:
        while effects := self.group.effects():
            self._keep(effects)
            self.sent += [out.message for out in effects.messages]
            self.answers |= {each.request: each for each in effects.answers}
            self.events += effects.events

    def _keep(self, effects: GroupEffects) -> None:
        for write in effects.writes:
            self.base = write.base or self.base
            self.entries += write.entries
            self.hard = write.hard_state or self.hard
            self.group.durable(write.number)

    def do(self, command: Command, call: bytes = b"") -> Answer | None:
        self.numbers += 1
        self.group.execute(self.numbers, call, commands.encode(command), self.wall)
        self.run()
        return self.answers.get(self.numbers)

    def result(self, command: Command) -> object:
        answer = self.do(command)
        assert answer is not None
        assert answer.error is None
        return decode_result(answer.payload)

    def tell(self, *streams: StreamReport, node: int = 1, incarnation: int = 1) -> None:
        self.numbers += 1
        knows = self.features.get(node, Feature.TABLES)
        report = Report(node, incarnation, self.numbers, True, streams, knows)
        self.group.report(report, self.now)
        self.run()

    def prepared(self) -> Lone:
        self.result(commands.RegisterNode(1, "host:1", 1))
        self.tell()
        made = self.result(commands.CreateLog(LOG, "log", 1, 1, 1))
        assert made == Created(LOG, (1,))
        return self


def told(end: int, epoch: int = 1, committed: int = 1) -> StreamReport:
    return StreamReport(1, epoch, 0, committed, end, ReplicaState.RUNNING)


def test_a_node_is_told_nothing_that_it_has_no_record_for() -> None:
    lone = Lone(fault_logs=True).prepared()
    lone.wait(1.0)
    (faults, *_) = [each for each in lone.sent if isinstance(each, Faults)]
    assert (faults.epoch, faults.sequence, faults.members) == (1, 0, (1,))
    assert not any(isinstance(each, Configure) for each in lone.sent)
    lone.group.recorded(Recorded(1, 1, 0, False))
    lone.run()
    assert any(isinstance(each, Configure) for each in lone.sent)
    lone.sent.clear()
    lone.tell(told(1))
    lone.wait(0.2)
    assert any(isinstance(each, Faults) and each.viable for each in lone.sent)


def test_a_command_is_answered_with_its_result() -> None:
    lone = Lone()
    assert lone.result(commands.RegisterNode(1, "host:1", 1)) == Done()
    refused = lone.do(commands.DeleteLog(LOG))
    assert refused is not None
    assert isinstance(refused.error, NotFoundError)


def test_who_does_not_lead_says_so() -> None:
    lone = Lone(lead=False)
    answer = lone.do(commands.RegisterNode(1, "host:1", 1))
    assert answer is not None
    assert isinstance(answer.error, NotLeaderError)
    assert answer.error.outcome == "not_stored"


def test_clients_send_no_cuts_and_no_garbage() -> None:
    lone = Lone()
    answer = lone.do(commands.Cut(()))
    assert answer is not None
    assert isinstance(answer.error, UnauthorizedError)
    lone.group.execute(99, b"", b"garbage", 0)
    lone.run()
    assert isinstance(lone.answers[99].error, InvalidArgumentError)


def test_nodes_are_told_what_to_be_and_what_is_committed() -> None:
    lone = Lone().prepared()
    configured = [each for each in lone.sent if isinstance(each, Configure)]
    assert [config.stream for config in configured[0].streams] == [1]
    lone.sent.clear()
    lone.tell(told(4))
    (commit,) = [each for each in lone.sent if isinstance(each, Commit)]
    assert (commit.cuts[0].version, commit.cuts[0].high_watermark) == (1, 3)


def test_a_configuration_is_repeated_until_it_is_reported() -> None:
    lone = Lone().prepared()
    lone.sent.clear()
    lone.tell()
    lone.wait(0.3)
    assert any(isinstance(each, Configure) for each in lone.sent)
    lone.tell(told(1))
    lone.sent.clear()
    lone.wait(0.4)
    assert not any(isinstance(each, Configure) for each in lone.sent)


def test_a_lost_commit_is_sent_again_when_the_report_does_not_move() -> None:
    lone = Lone().prepared()
    lone.tell(told(4))
    lone.sent.clear()
    lone.tell(told(4))
    assert not any(isinstance(each, Commit) for each in lone.sent)
    lone.wait(0.1)
    lone.tell(told(4))
    assert any(isinstance(each, Commit) for each in lone.sent)


def test_a_stream_that_nobody_has_is_let_go() -> None:
    lone = Lone().prepared()
    lone.tell(told(1))
    lone.sent.clear()
    lone.result(commands.DeleteLog(LOG))
    lone.wait(0.1)
    dropped = [each.dropped for each in lone.sent if isinstance(each, Configure)]
    assert dropped == [(1,)]


def test_a_seal_is_answered_when_the_replicas_keep_it() -> None:
    lone = Lone().prepared()
    lone.tell(told(4))
    assert lone.do(commands.Seal(1)) is None
    request = lone.numbers
    lone.tell(told(4, epoch=2))
    lone.wait(0.05)
    assert decode_result(lone.answers[request].payload) == Epoch(1, 2, 4)


@pytest.mark.parametrize(
    "command",
    [
        commands.Seal(-1),
        commands.Unseal(-(1 << 63)),
        commands.MoveReplica(-5, 1, 2),
        commands.DropLearner((1 << 64) - 1, 1),
        commands.Seal(0),
    ],
)
def test_a_number_that_no_stream_has_does_not_stop_the_cuts(command: Command) -> None:
    """It is in the log, and not refused yet, when records can be committed."""
    lone = Lone().prepared()
    lone.tell(told(1))
    lone.group.execute(99, b"", commands.encode(command), 0)
    lone.tell(told(4))
    assert lone.group.repository.state.streams[1].committed == 4
    assert isinstance(lone.answers[99].error, NotFoundError)


def test_an_unseal_may_overtake_a_seal() -> None:
    """No state lies between two epochs, so there is nothing to wait for."""
    lone = Lone().prepared()
    lone.tell(told(4))
    assert lone.do(commands.Seal(1)) is None
    sealing = lone.numbers
    assert lone.result(commands.Unseal(1)) == Epoch(1, 3, 4)
    lone.tell(told(9))
    assert lone.group.repository.state.streams[1].committed == 4
    lone.tell(told(4, epoch=3))
    lone.wait(0.05)
    assert decode_result(lone.answers[sealing].payload) == Epoch(1, 2, 4)
    lone.tell(told(9, epoch=3))
    assert lone.group.repository.state.streams[1].committed == 9


def test_reports_that_say_nothing_new_are_not_logged() -> None:
    lone = Lone().prepared()
    lone.tell(told(4))
    before = len(lone.entries), lone.group.repository.index
    for _ in range(100):
        lone.tell(told(4, committed=4))
        lone.wait(0.1)
    assert (len(lone.entries), lone.group.repository.index) == before


def test_a_node_that_is_not_registered_is_not_heard() -> None:
    lone = Lone().prepared()
    lone.group.report(Report(2, 1, 1, True, (told(4),)), lone.now)
    assert lone.group.leadership is not None
    assert set(lone.group.leadership.collector.reports) == {1}
    lone.tell(told(3))
    assert lone.group.repository.state.streams[1].committed == 3


def test_a_seal_that_takes_too_long_has_an_unknown_outcome() -> None:
    lone = Lone().prepared()
    lone.do(commands.Seal(1))
    request = lone.numbers
    for _ in range(60):
        lone.tell(told(1))
        lone.wait(0.1)
    error = lone.answers[request].error
    assert error is not None
    assert error.outcome == "unknown"


def test_metadata_waits_for_news() -> None:
    lone = Lone().prepared()
    known = lone.group.metadata()
    assert known.nodes[0].voter
    assert known.logs[0].name == "log"
    lone.group.read_metadata(500, lone.now, known=known.index, wait=10.0)
    lone.run()
    assert 500 not in lone.answers
    lone.result(commands.Trim(LOG, 1))
    assert 500 not in lone.answers
    lone.result(commands.DrainNode(1))
    assert lone.answers[500].error is None


def test_a_linearizable_read_is_confirmed() -> None:
    lone = Lone().prepared()
    lone.group.read_metadata(500, lone.now, linearizable=True)
    lone.run()
    assert lone.answers[500].error is None


def test_a_read_that_is_refused_costs_no_other_its_answer() -> None:
    lone = Lone(requests_max=2).prepared()
    lone.group.read_metadata(500, lone.now, linearizable=True)
    lone.group.read_metadata(501, lone.now, known=1 << 40, wait=1e9)
    lone.group.read_metadata(502, lone.now, linearizable=True)
    lone.run()
    assert isinstance(lone.answers[502].error, UnavailableError)
    assert lone.answers[500].error is None
    # It left nothing behind either: the next one is answered, a repeat of it too.
    for request in (503, 504):
        lone.group.read_metadata(request, lone.now, linearizable=True)
        lone.run()
        assert lone.answers[request].error is None


def test_what_nodes_say_never_waits_behind_clients() -> None:
    lone = Lone(requests_max=2).prepared()
    drain = commands.encode(commands.DrainNode(1))
    for request in (500, 501, 502):
        lone.group.execute(request, b"", drain, 0)
    registers = commands.RegisterNode(1, "host:1", 2)
    lone.group.execute(503, b"", commands.encode(registers), 0)
    lone.run()
    assert isinstance(lone.answers[502].error, UnavailableError)
    assert lone.answers[503].error is None


def test_a_read_without_a_leader_fails_and_leaves_nothing() -> None:
    lone = Lone(lead=False)
    lone.group.read_metadata(500, lone.now, linearizable=True)
    lone.run()
    assert isinstance(lone.answers[500].error, NotLeaderError)
    lone.wait(2.0)
    lone.group.read_metadata(500, lone.now, linearizable=True)
    lone.run()
    assert lone.answers[500].error is None


def test_the_log_is_folded_and_a_restart_goes_on() -> None:
    lone = Lone().prepared()
    for number in range(50):
        lone.result(commands.SetCursor(LOG, f"reader-{number}", 1))
    assert lone.base.index > 20
    entries = [entry for entry in lone.entries if entry.index > lone.base.index]
    again = Lone(Stored(lone.base, entries, lone.hard))
    repository = again.group.repository
    assert len(repository.state.logs[LOG].cursors) == 50
    assert repository.config(1) == lone.group.repository.config(1)


def test_what_only_asks_is_not_remembered() -> None:
    """All cursors of a log, thousands of times, would be more than a disk takes."""
    lone = Lone().prepared()
    assert lone.result(commands.SetCursor(LOG, "reader", 1)) == Done()
    remembered = len(lone.group.repository.state.calls)
    assert lone.do(commands.GetCursors(LOG), b"asked") is not None
    assert len(lone.group.repository.state.calls) == remembered
    assert lone.do(commands.SetCursor(LOG, "other", 1), b"made") is not None
    assert len(lone.group.repository.state.calls) == remembered + 1


def test_a_state_that_is_too_large_is_not_folded_until_it_is_smaller() -> None:
    """As when a node is started with smaller segments than before."""
    large = Lone().prepared()
    for number in range(50):
        large.result(commands.SetCursor(LOG, f"reader-{number:030}", 1))
    entries = [entry for entry in large.entries if entry.index > large.base.index]
    lone = Lone(Stored(large.base, entries, large.hard), state_bytes_max=1500)
    for number in range(20):
        lone.result(commands.SetCursor(LOG, f"reader-{number:030}", 1, True))
    held, unfolded = lone.base.index, lone.group.unfolded_bytes
    assert unfolded > 1500
    for number in range(50):
        lone.result(commands.DeleteCursor(LOG, f"reader-{number:030}"))
    assert lone.base.index > held
    assert lone.group.unfolded_bytes == 0


def test_no_log_without_replicas_is_placed() -> None:
    """What comes from elsewhere than this package's client may ask for it."""
    lone = Lone().prepared()
    for replication, fewest in ((0, 0), (-1, 0), (1, 2), (10, 1)):
        command = commands.CreateLog(b"x" * 16, "more", 1, replication, fewest)
        answer = lone.do(command)
        assert answer is not None
        assert isinstance(answer.error, InvalidArgumentError)


def test_whoever_loses_the_lead_does_not_know() -> None:
    """A proposal whose entry never came back when the lead was lost."""
    lone = Lone().prepared()
    command = commands.encode(commands.SetCursor(LOG, "reader", 1))
    lone.group.execute(900, b"", command, 0)
    core = lone.group.raft.core
    core.follow(core.term + 1, 0)
    lone.run()
    error = lone.answers[900].error
    assert isinstance(error, NotLeaderError)
    assert error.outcome == "unknown"
    assert not lone.group.leads


def test_the_leader_says_who_is_in_sync_and_for_how_long_a_stream_lacks_replicas() -> (
    None
):
    lone = Lone()
    lone.result(commands.RegisterNode(1, "host:1", 1))
    lone.result(commands.RegisterNode(2, "host:2", 1))
    lone.tell()
    lone.tell(node=2)
    lone.result(commands.CreateLog(LOG, "log", 1, 2, 1))

    def stream() -> StreamInfo:
        ((found,),) = [log.streams for log in lone.group.metadata(judged=True).logs]
        return found

    for _ in range(20):
        lone.wait(0.1)
        lone.tell(told(1))
        lone.tell(told(1), node=2)
    assert (stream().in_sync, stream().lacking_ms) == (stream().replicas, 0)
    assert sorted(stream().replicas) == [1, 2]
    # Node 2 falls silent: it is dead after half a second, and its replica with it.
    for _ in range(20):
        lone.wait(0.1)
        lone.tell(told(1, epoch=stream().epoch))
    assert stream().in_sync == (1,)
    assert 1000 <= stream().lacking_ms <= 1600
    (gone,) = [
        node for node in lone.group.metadata(judged=True).nodes if not node.alive
    ]
    assert (gone.node, gone.silent_ms) == (2, 2000)


def test_whoever_does_not_lead_does_not_say_who_is_in_sync() -> None:
    lone = Lone().prepared()
    lone.tell(told(1))
    assert lone.group.metadata(judged=True).logs[0].streams[0].in_sync == (1,)
    lone.group.leadership = None
    assert lone.group.metadata(judged=True).logs[0].streams[0].in_sync is None


def three_nodes() -> Lone:
    lone = Lone()
    for node in (1, 2, 3):
        lone.result(commands.RegisterNode(node, f"host:{node}", 1))
        lone.tell(node=node)
    return lone


@pytest.mark.parametrize("replication", [4, 5, 9])
def test_more_replicas_than_nodes_are_refused_at_once(replication: int) -> None:
    lone = three_nodes()
    command = commands.CreateLog(LOG, "log", 1, replication, replication // 2 + 1)
    before, index = lone.group.repository.snapshot(), lone.group.repository.index
    answer = lone.do(command)
    assert answer is not None
    assert type(answer.error) is InvalidArgumentError
    assert "the cluster has 3 nodes" in str(answer.error)
    assert lone.group.repository.index == index
    assert lone.group.repository.snapshot() == before


def test_replicas_may_be_missing_if_the_caller_says_so() -> None:
    lone = three_nodes()
    command = commands.CreateLog(LOG, "log", 1, 5, 3, allow_missing=True)
    assert lone.result(command) == Created(LOG, (1,))
    assert len(lone.group.repository.state.streams[1].replicas) == 3
    # Not so many that no append can ever be acknowledged.
    command = commands.CreateLog(b"m" * 16, "more", 1, 9, 5, allow_missing=True)
    answer = lone.do(command)
    assert answer is not None
    assert type(answer.error) is InvalidArgumentError
    assert "replication is 9 and min_replicas 5" in str(answer.error)


def test_replicas_are_not_raised_beyond_the_nodes_either() -> None:
    lone = three_nodes()
    lone.result(commands.CreateLog(LOG, "log", 1, 2, 1))
    answer = lone.do(commands.AlterLog(LOG, replication=4))
    assert answer is not None
    assert type(answer.error) is InvalidArgumentError
    raised = commands.AlterLog(LOG, replication=4, allow_missing=True)
    assert lone.result(raised) == Done()
    # What is so already may be said again, and lowered.
    assert lone.result(commands.AlterLog(LOG, name="other")) == Done()
    assert lone.result(commands.AlterLog(LOG, replication=4)) == Done()


def test_a_node_that_is_drained_takes_no_replica() -> None:
    lone = three_nodes()
    lone.result(commands.DrainNode(3))
    answer = lone.do(commands.CreateLog(LOG, "log", 1, 3, 2))
    assert answer is not None
    assert "the cluster has 2 nodes" in str(answer.error)


def test_voters_count_before_they_have_registered() -> None:
    members = Stored(Base(membership=Membership((1, 2, 3))))
    assert takers(State(), members.base.membership) == {1, 2, 3}
    assert takers(State(removed=(2,)), members.base.membership) == {1, 3}


TABLE = CreateTable(b"t" * 16, b"p" * 16, "stock", LOG)


def test_tables_wait_until_all_nodes_know_them() -> None:
    lone = three_nodes()
    lone.result(commands.CreateLog(LOG, "log", 1, 2, 1))
    lone.features[3] = Feature(0)
    lone.tell(node=3)
    answer = lone.do(ChangeTables((TABLE,)))
    assert answer is not None
    assert "node 3 runs a version that does not know tables" in str(answer.error)
    del lone.features[3]
    lone.tell(node=3)
    lone.wall = 7
    assert lone.result(ChangeTables((TABLE,))) == Done(7)
    (table,) = lone.group.metadata().tables
    assert (table.name, table.created, table.joined) == ("stock", 7, (1, 2))


def test_names_and_pins_of_tables_are_guarded() -> None:
    lone = three_nodes()
    lone.result(commands.CreateLog(LOG, "log", 1, 2, 1))
    for change in (
        CreateTable(b"u" * 16, b"q" * 16, "..", LOG),
        RenameTable(TABLE.table, "a/b"),
        CreateIndex(TABLE.table, b"i" * 16, "x\ny", b"f"),
    ):
        answer = lone.do(ChangeTables((TABLE, change)))
        assert answer is not None
        assert isinstance(answer.error, InvalidArgumentError), change
    lone.result(ChangeTables((TABLE,)))
    pin = f"table:{TABLE.table.hex()}:1"
    for command in (
        commands.SetCursor(LOG, pin, 1),
        commands.SetCursor(LOG, "table:mine", 1),
        commands.DeleteCursor(LOG, pin),
    ):
        answer = lone.do(command)
        assert answer is not None
        assert isinstance(answer.error, TableCursorError), command
    # It is moved by the host, when that has flushed.
    move = commands.SetCursor(LOG, pin, 1, change=commands.CursorChange.MOVE)
    assert isinstance(lone.result(move), Done)


def test_metadata_of_a_rescued_cluster_is_not_settled_until_all_is_known() -> None:
    lone = Lone()
    assert lone.group.metadata().settled
    state = lone.group.repository.state
    state.faults = first(Configuration(2, 0, (1, 2, 3), (3,)), (1, 2))
    assert not lone.group.metadata().settled
    state.faults.awaited = ()
    assert lone.group.metadata().settled


def test_what_a_table_needs_is_not_taken_away() -> None:
    lone = three_nodes()
    lone.result(commands.CreateLog(LOG, "log", 1, 2, 1))
    lone.result(ChangeTables((TABLE,)))
    answer = lone.do(commands.DeleteLog(LOG))
    assert answer is not None
    assert isinstance(answer.error, LogInUseError)
    assert answer.error.tables == ("stock",)
    lone.group.repository.state.logs[LOG].high_watermark = 9
    answer = lone.do(commands.Trim(LOG, 5, ignore_pins=True))
    assert answer is not None
    assert isinstance(answer.error, TablePinError)
    assert (answer.error.table, answer.error.position) == ("stock", 1)
    assert lone.result(commands.Trim(LOG, 5)) == Trimmed(1)
    lone.result(ChangeTables((DropTable(TABLE.table),)))
    assert lone.result(commands.Trim(LOG, 5, ignore_pins=True)) == Trimmed(5)


def test_tables_that_begin_later_wait_until_all_nodes_know_that() -> None:
    lone = three_nodes()
    lone.result(commands.CreateLog(LOG, "log", 1, 2, 1))
    later = msgspec.structs.replace(TABLE, begin=1)
    trees = (b"r" * 16,)
    made = ReplaceTable(TABLE.table, b"u" * 16, trees, empty=False, begin=1)
    answer = lone.do(ChangeTables((later,)))
    assert answer is not None
    assert "that begin behind the first record" in str(answer.error)
    lone.result(ChangeTables((TABLE,)))
    answer = lone.do(ChangeTables((made,)))
    assert answer is not None
    assert isinstance(answer.error, OlderNodesError)
    for node in (1, 2, 3):
        lone.features[node] = FEATURES_OF_TABLES
        lone.tell(node=node)
    assert isinstance(lone.result(ChangeTables((made,))), Done)


def test_a_leader_that_ended_is_missed_although_it_was_heard_of_late() -> None:
    """What it sent last may be taken after one of the two connections to it broke."""
    voters = Stored(Base(membership=Membership((1, 2, 3))))
    lone = Lone(voters, lead=False)
    core = lone.group.raft.core
    heartbeat = codec.encode(Heartbeat(2, 1, 1, 0, 0, 0))
    for _ in range(3):
        lone.group.step(heartbeat, 2, lone.now)
        lone.wait(0.05)
    lone.group.lost(2, lone.now)
    lone.group.step(heartbeat, 2, lone.now)
    lone.run()
    suspected = [core.suspected]
    for node in (3, 2):
        lone.group.left(node, lone.now)
        suspected.append(core.suspected)
    assert suspected == [False, False, True]
    lone.sent.clear()
    lone.wait(0.15)
    assert any(isinstance(each, Consensus) for each in lone.sent)


def quiet(lone: Lone, seconds: float) -> int:
    """Let all nodes live and nothing happen; return how often the leader looked."""
    leads = lone.group.leadership
    assert leads is not None
    looks = set()
    for _ in range(round(seconds / 0.05)):
        for node in (1, 2, 3):
            lone.group.kept(node, lone.now)
        lone.wait(0.05)
        looks.add(leads.looked)
    return len(looks)


def test_a_leader_with_nothing_to_do_looks_seldom() -> None:
    lone = three_nodes()
    quiet(lone, 5.0)
    assert quiet(lone, 5.0) == 11
    lone.result(commands.CreateLog(LOG, "log", 1, 1, 1))
    assert quiet(lone, 1.0) >= 10


def test_a_leader_that_looks_seldom_looks_when_a_connection_breaks() -> None:
    lone = three_nodes()
    quiet(lone, 5.0)
    leads = lone.group.leadership
    assert leads is not None
    while lone.now - leads.looked < 2 * LOOK_SECONDS:
        quiet(lone, 0.05)
    lone.group.lost(3, lone.now)
    lone.run()
    assert leads.looked == lone.now


@pytest.mark.parametrize("ticks", range(0, 10, 3))
def test_a_leader_that_looks_seldom_sees_at_once_who_is_silent(ticks: int) -> None:
    lone = three_nodes()
    quiet(lone, 5.0 + ticks * 0.05)
    lone.events.clear()
    for _ in range(12):
        for node in (1, 2):
            lone.group.kept(node, lone.now)
        lone.wait(0.05)
    assert [event.name for event in lone.events] == ["node_lost"]
