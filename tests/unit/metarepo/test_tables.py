"""Tables in the metadata repository: the catalog, hosts, and the pins of hosts."""

import pytest

from braidlog.errors import (
    AlreadyExistsError,
    FencedError,
    InvalidArgumentError,
    NotFoundError,
    TooLargeError,
    UnavailableError,
)
from braidlog.metarepo.leader.hosting import Hosting
from braidlog.metarepo.machine import tables
from braidlog.wire import commands
from braidlog.wire.commands import ChangeTables, PlaceHosts, SettleHost
from braidlog.wire.results import Done, Refused
from braidlog.wire.tables import (
    CreateIndex,
    CreateTable,
    DropIndex,
    DropTable,
    IndexStatus,
    RenameTable,
    ReplaceTable,
    SettleIndex,
    TableChange,
    TableInfo,
)
from unit.metarepo.bench import LOG, Bench, one_cut


def identity(number: int) -> bytes:
    return number.to_bytes(16, "big")


TABLE, TREE, INDEX = identity(1), identity(2), identity(3)


def create(**changes: object) -> CreateTable:
    fields: dict[str, object] = {
        "table": TABLE,
        "tree": TREE,
        "name": "stock",
        "log": LOG,
    }
    return CreateTable(**{**fields, **changes})  # type: ignore[arg-type]


class Catalog(Bench):
    """A log of two replicas on four nodes, and the hosting of its leader."""

    def __init__(self, *changes: TableChange) -> None:
        super().__init__(4)
        self.create((1, 2), replication=2)
        self.do(one_cut(1, (1, 1, 1, 9)))
        self.hosting = Hosting(30.0)
        self.now = 100.0
        self.dead: set[int] = set()
        if changes:
            assert self.change(*changes) == Done(7)

    def change(self, *changes: TableChange) -> object:
        return self.do(ChangeTables(changes, 7))

    def refuse(self, *changes: TableChange) -> int:
        return self.refused(ChangeTables(changes, 7)).code

    def table(self, table: bytes = TABLE) -> TableInfo:
        return self.repository.state.tables[table]

    def pins(self) -> dict[str, int]:
        cursors = self.repository.state.logs[LOG].cursors
        assert all(each.pin and not each.lease for each in cursors.values())
        return {name.rsplit(":")[-1]: each.position for name, each in cursors.items()}

    def decide(self, wait: float = 1.0) -> list[PlaceHosts]:
        self.now += wait
        dead = self.dead.__contains__
        return self.hosting.decide(self.repository.state, dead, self.now)

    def is_calm(self) -> bool:
        return self.hosting.calm

    def place(self, wait: float = 1.0) -> tuple[int, ...]:
        """Carry out what is decided, and return the hosts."""
        for command in self.decide(wait):
            assert not isinstance(self.do(command), Refused), command
        return self.table().hosts

    def trim(self, first: int) -> None:
        for node in self.table().hosts:
            name = tables.pin_name(TABLE, node)
            move = commands.CursorChange.MOVE
            self.do(commands.SetCursor(LOG, name, first, change=move))
        self.do(commands.Trim(LOG, first))


def test_a_table_has_hosts_and_each_pins_the_log() -> None:
    bench = Catalog(create())
    table = bench.table()
    assert (table.hosts, table.joined, table.begin) == ((1, 2), (1, 2), 1)
    assert bench.pins() == {"1": 1, "2": 1}
    assert bench.do(commands.Trim(LOG, 5)).first == 1  # type: ignore[union-attr]
    assert bench.change(DropTable(TABLE)) == Done(7)
    assert bench.pins() == {}
    assert bench.do(commands.Trim(LOG, 5)).first == 5  # type: ignore[union-attr]


def test_tables_are_spread_over_the_nodes() -> None:
    bench = Catalog(create())
    bench.change(create(table=identity(8), tree=identity(9), name="other"))
    assert bench.table(identity(8)).hosts == (3, 4)


def test_all_changes_are_made_or_none() -> None:
    bench = Catalog()
    bad = create(table=identity(8), tree=identity(9), log=b"?" * 16, name="other")
    assert bench.refuse(create(), bad) == NotFoundError.code
    assert bench.repository.state.tables == {}


def test_of_two_creators_of_a_name_one_wins() -> None:
    bench = Catalog(create())
    other = create(table=identity(8), tree=identity(9))
    assert bench.refuse(other) == AlreadyExistsError.code
    # The name is free for whoever drops the table in the same change.
    bench.change(DropTable(TABLE), other)
    assert list(bench.repository.state.tables) == [identity(8)]


@pytest.mark.parametrize(
    "changes",
    [
        (),
        (create(table=b"short"),),
        (create(tree=TABLE),),
        (create(name=""),),
        (create(name="x" * 300),),
        (create(replicas=99),),
        (create(options=bytes(5000)),),
        (create(hosts=(1, 1)),),
        (create(hosts=(9,)),),
        (create(), create()),
        (DropTable(TABLE),),
        (RenameTable(TABLE, "x"),),
        (create(), RenameTable(TABLE, "")),
        (create(), CreateIndex(TABLE, TREE, "i", b"f")),
        (create(), CreateIndex(TABLE, INDEX, "", b"f")),
        (create(), CreateIndex(TABLE, INDEX, "i", b"")),
        (create(), CreateIndex(TABLE, INDEX, "i", bytes(5000))),
        (create(), DropIndex(TABLE, INDEX)),
        (create(), ReplaceTable(TABLE, TABLE, (INDEX,), empty=True)),
        (create(), ReplaceTable(TABLE, identity(8), (), empty=True)),
    ],
    ids=repr,
)
def test_a_refusal_changes_nothing(changes: tuple[TableChange, ...]) -> None:
    Catalog().refuse(*changes)


def test_names_may_be_swapped_over_a_third() -> None:
    bench = Catalog(create(), create(table=identity(8), tree=identity(9), name="b"))
    bench.change(
        RenameTable(TABLE, "c"),
        RenameTable(identity(8), "stock"),
        RenameTable(TABLE, "b"),
    )
    assert [table.name for table in bench.repository.state.tables.values()] == [
        "b",
        "stock",
    ]


def test_an_index_of_a_new_table_is_active_at_once() -> None:
    bench = Catalog(create(), CreateIndex(TABLE, INDEX, "i", b"f"))
    assert bench.table().indexes[0].status is IndexStatus.ACTIVE


def test_the_first_host_that_has_built_an_index_decides() -> None:
    bench = Catalog(create())
    bench.change(CreateIndex(TABLE, INDEX, "i", b"f"))
    assert bench.table().indexes[0].status is IndexStatus.BUILDING
    bench.change(SettleIndex(TABLE, INDEX, active=False, reason="r" * 9999))
    index = bench.table().indexes[0]
    assert (index.status, len(index.reason)) == (IndexStatus.ABORTED, 500)
    assert bench.change(SettleIndex(TABLE, INDEX, active=True)) == Done(7)
    assert bench.table().indexes[0] == index
    # One that was dropped has nothing to be settled.
    bench.change(DropIndex(TABLE, INDEX))
    assert bench.change(SettleIndex(TABLE, INDEX, active=True)) == Done(7)


def test_emptied_and_rebuilt_tables_have_new_identities() -> None:
    bench = Catalog(create(), CreateIndex(TABLE, INDEX, "i", b"f"))
    new = identity(8)
    bench.change(ReplaceTable(TABLE, new, (identity(9), identity(10)), empty=True))
    table = bench.table(new)
    assert (table.name, table.tree, table.begin) == ("stock", identity(9), 10)
    assert table.indexes[0].tree == identity(10)
    assert bench.pins() == {"1": 10, "2": 10}
    trees = (identity(12), identity(13))
    bench.change(ReplaceTable(new, identity(11), trees, empty=False))
    assert bench.table(identity(11)).begin == 1


def test_a_table_begins_where_it_was_told() -> None:
    bench = Catalog(create(begin=4))
    assert (bench.table().begin, bench.pins()) == (4, {"1": 4, "2": 4})
    bench.change(create(table=identity(8), tree=identity(9), name="later", begin=10))
    assert bench.table(identity(8)).begin == 10
    # A rebuilt one begins there, too, and not with the first record of the log.
    new = identity(10)
    bench.change(ReplaceTable(TABLE, new, (identity(11),), empty=False, begin=4))
    assert bench.table(new).begin == 4
    bench.change(DropTable(new), DropTable(identity(8)))
    bench.do(commands.Trim(LOG, 6))
    for begin in (5, 11):
        assert bench.refuse(create(begin=begin)) == InvalidArgumentError.code
    bench.change(create(begin=6))
    again = ReplaceTable(TABLE, new, (identity(11),), empty=False, begin=5)
    assert bench.refuse(again) == InvalidArgumentError.code


def test_no_trim_passes_the_pin_of_a_table() -> None:
    bench = Catalog(create())
    bench.do(commands.SetCursor(LOG, "mine", 2, True))
    force = commands.Trim(LOG, 8, ignore_pins=True)
    assert bench.do(force).first == 1  # type: ignore[union-attr]
    bench.trim(5)
    assert bench.do(force).first == 5  # type: ignore[union-attr]


def test_a_replacement_that_lacks_an_index_is_void() -> None:
    bench = Catalog(create(), CreateIndex(TABLE, INDEX, "i", b"f"))
    made = ReplaceTable(TABLE, identity(8), (identity(9),), empty=True)
    assert bench.refuse(made) == FencedError.code


def test_a_log_with_tables_is_not_deleted() -> None:
    bench = Catalog(create())
    assert "stock" in bench.refused(commands.DeleteLog(LOG)).message
    bench.change(DropTable(TABLE))
    assert bench.do(commands.DeleteLog(LOG)) == Done()


def test_a_log_bounds_the_pins_of_its_tables() -> None:
    bench = Catalog()
    for number in range(1023):
        assert bench.do(commands.SetCursor(LOG, f"c{number}", 1)) == Done()
    assert bench.refuse(create()) == TooLargeError.code
    bench.do(commands.DeleteCursor(LOG, "c1"))
    bench.change(create())


# --- hosts


def test_a_host_that_is_dead_for_long_is_replaced() -> None:
    bench = Catalog(create())
    assert bench.decide() == []
    assert bench.is_calm()
    bench.dead = {2}
    assert bench.decide() == []
    assert not bench.is_calm()
    assert bench.place(wait=31) == (1, 2, 3)
    # It copies from those that have everything; only then the dead one goes.
    assert (bench.table().joined, bench.pins()) == ((1, 2), {"1": 1, "2": 1, "3": 1})
    assert bench.decide(5) == []
    bench.do(SettleHost(TABLE, 3, joined=True))
    assert bench.place() == (1, 3)
    assert bench.pins() == {"1": 1, "3": 1}
    bench.dead = set()
    assert bench.decide() == []


def test_a_host_that_is_back_in_time_stays() -> None:
    bench = Catalog(create())
    bench.dead = {2}
    assert bench.decide(20) == []
    bench.dead = set()
    assert bench.decide(5) == []
    bench.dead = {2}
    assert bench.decide(25) == []


def test_a_drained_host_leaves_when_another_has_joined() -> None:
    bench = Catalog(create())
    bench.do(commands.DrainNode(1))
    assert bench.place() == (1, 2, 3)
    assert bench.decide() == []
    bench.do(SettleHost(TABLE, 3, joined=True))
    assert bench.place() == (2, 3)


def test_a_node_that_keeps_a_table_is_not_removed() -> None:
    bench = Catalog(create(hosts=(3,)))
    assert "still keeps 1 tables" in bench.refused(commands.RemoveNode(3)).message


def test_the_last_host_that_has_everything_stays() -> None:
    bench = Catalog(create(hosts=(1,), replicas=1))
    bench.trim(5)
    bench.dead = {1}
    assert bench.place(0.0) == (1,)
    assert bench.place(60) == (1, 2)
    bench.dead = {1}
    assert bench.decide(600) == []
    lost = PlaceHosts(TABLE, (1, 2), (2,))
    assert bench.refused(lost).code == InvalidArgumentError.code
    assert bench.refused(SettleHost(TABLE, 1, joined=False)).code == (
        UnavailableError.code
    )


def test_a_host_that_lost_some_of_it_joins_again() -> None:
    bench = Catalog(create())
    bench.do(SettleHost(TABLE, 2, joined=False))
    assert bench.table().joined == (1,)
    bench.do(SettleHost(TABLE, 2, joined=True))
    assert bench.table().joined == (1, 2)
    assert bench.do(SettleHost(TABLE, 9, joined=True)) == Done()
    assert bench.do(SettleHost(identity(99), 1, joined=True)) == Done()


def test_places_are_for_the_hosts_that_were_seen() -> None:
    bench = Catalog(create())
    assert bench.refused(PlaceHosts(TABLE, (1,), (1, 3))).code == FencedError.code
    assert bench.refused(PlaceHosts(identity(9), (), (1,))).code == NotFoundError.code


def test_a_node_that_lost_its_directory_keeps_no_table() -> None:
    bench = Catalog(create())
    bench.do(commands.RegisterNode(2, "host:2", 2, b"d" * 16))
    bench.do(commands.RegisterNode(1, "host:1", 2, b"e" * 16))
    bench.trim(5)
    # Stream 1 has its records on node 1 as well.
    assert bench.do(commands.ReadmitNode(2)) == Done()
    assert bench.table().hosts == (1,)
    assert bench.place(0.1) == (1, 3)
    refused = bench.refused(commands.ReadmitNode(1))
    assert refused.code == InvalidArgumentError.code


def test_a_host_that_a_rescue_left_out_is_replaced() -> None:
    """No command may name it any more."""
    bench = Catalog(create(hosts=(1, 2)))
    del bench.repository.state.nodes[1]
    assert bench.place() == (2, 3)
    assert bench.table().joined == (2,)
    bench.do(SettleHost(TABLE, 3, joined=True))
    assert bench.decide() == []


def test_a_host_left_out_that_alone_had_all_leaves_if_the_log_has_it() -> None:
    bench = Catalog(create(hosts=(1,), replicas=1))
    del bench.repository.state.nodes[1]
    assert bench.place() == (2,)
    bench = Catalog(create(hosts=(1,), replicas=1))
    bench.trim(5)
    del bench.repository.state.nodes[1]
    assert bench.decide() == []
    assert bench.table().hosts == (1,)


def test_more_replicas_of_the_log_are_more_hosts() -> None:
    bench = Catalog(create())
    bench.do(commands.AlterLog(LOG, replication=3))
    assert bench.place() == (1, 2, 3)
    bench.do(SettleHost(TABLE, 3, joined=True))
    bench.do(commands.AlterLog(LOG, replication=2))
    assert bench.place() == (1, 2)


# --- balance


def several(count: int, hosts: tuple[int, ...]) -> list[TableChange]:
    """Return the changes that create so many tables on these nodes."""
    return [
        create(
            table=identity(100 + n),
            tree=identity(200 + n),
            name=f"t{n}",
            hosts=hosts,
            replicas=len(hosts),
        )
        for n in range(count)
    ]


class Moves(Catalog):
    """A catalog whose hosts join as soon as they are told to."""

    def loads(self) -> dict[int, int]:
        state = self.repository.state
        hosts = [node for table in state.tables.values() for node in table.hosts]
        return {node: hosts.count(node) for node in state.nodes}

    def step(self, wait: float = 1.0) -> int:
        """Carry out what is decided; return how many changes that were."""
        state = self.repository.state
        before = {t.table: t for t in state.tables.values()}
        commands = self.decide(wait)
        for command in commands:
            assert not isinstance(self.do(command), Refused), command
        moving = [t for t in state.tables.values() if len(t.hosts) > t.replicas]
        assert len(moving) <= 1
        for table in state.tables.values():
            # Never fewer hosts that have all of it.
            assert len(table.joined) >= min(
                table.replicas, len(before[table.table].joined)
            )
        return len(commands)

    def join(self) -> None:
        for table in list(self.repository.state.tables.values()):
            for node in {*table.hosts} - {*table.joined}:
                self.do(SettleHost(table.table, node, joined=True))


def test_hosts_move_to_nodes_that_have_few_one_at_a_time() -> None:
    bench = Moves(*several(6, (1, 2)))
    assert bench.loads() == {1: 6, 2: 6, 3: 0, 4: 0}
    # It may be over soon: nodes that have just come may go again.
    assert (bench.step(), bench.step(28)) == (0, 0)
    assert not bench.is_calm()
    moves = 0
    while not bench.is_calm() or moves == 0:
        if bench.step(2):
            moves += 1
            # Nothing else moves before it has joined.
            assert [bench.step(40) for _ in range(3)] == [0, 0, 0]
            bench.join()
            assert bench.step(0) == 1
        assert moves <= 6
    assert sorted(bench.loads().values()) == [3, 3, 3, 3]
    assert moves == 6
    assert (bench.step(100), bench.is_calm()) == (0, True)


def test_a_difference_of_one_moves_nothing() -> None:
    bench = Moves(*several(1, (1, 2, 3)))
    assert [bench.step(60) for _ in range(3)] == [0, 0, 0]
    assert bench.is_calm()


def test_nothing_moves_while_a_node_is_dead_or_another_host_is_missing() -> None:
    bench = Moves(*several(4, (1,)))
    bench.dead = {4}
    assert [bench.step(20) for _ in range(5)] == [0] * 5
    bench.dead = set()
    assert (bench.step(20), bench.step(20)) == (0, 0)
    bench.do(commands.DrainNode(2))
    bench.do(commands.DrainNode(3))
    assert bench.step(20) == 1
    assert bench.loads() == {1: 4, 2: 0, 3: 0, 4: 1}
    bench.join()
    assert bench.step(0) == 1
    assert bench.loads() == {1: 3, 2: 0, 3: 0, 4: 1}


def test_of_too_many_hosts_a_dead_one_leaves_first() -> None:
    bench = Moves(*several(3, (1, 2)))
    assert (bench.step(), bench.step(30)) == (0, 1)
    bench.dead = {2}
    bench.join()
    assert bench.step(0) == 1
    moved = bench.table(identity(100))
    assert (moved.hosts, moved.joined) == ((1, 3), (1, 3))
