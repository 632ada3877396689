"""The scenario: nodes that keep a table, readers of it, and the judgement."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from braidlog.client.batches import NativeCodec
from braidlog.errors import InvalidArgumentError, LogError, NotFoundError
from braidlog.node.tables.host import HostState
from braidlog.node.tables.settings import TableSettings
from braidlog.node.tables.tables import TableWork
from braidlog.node.tables.worker import InlineWorker
from braidlog.wire.commands import ChangeTables
from braidlog.wire.rows import GetRows, Rows, ScanRows
from braidlog.wire.tables import CreateTable, DropTable, TableInfo
from sim.cluster.clients import opened
from sim.cluster.scenario import ClusterScenario
from sim.errors import ViolationError
from sim.faults import Storm
from sim.tables.engine import MemoryEngine, TableDisk
from sim.tables.oracle import Answer, TableOracle
from sim.world import Life, World

if TYPE_CHECKING:
    from braidlog.client.client import AsyncClient
    from sim.cluster.disk import ClusterDisk

__all__ = ["SETTINGS", "TABLE", "TableScenario"]

_LOG: Final = "log"
TABLE: Final = b"table of readers"
_KEYS: Final = (b"red", b"green", b"blue", b"black", b"none")
SETTINGS: Final = TableSettings(
    flush_s=0.3,
    merge_pause_s=0.1,
    retry_s=0.05,
    retry_max_s=0.5,
    patience_s=1.5,
    repair_s=2.0,
    part_bytes=256,
    pin_s=3.0,
)
_PAUSE_S: Final = 0.05
_DDL_S: Final = 0.8
_ROT: Final = 0.03
_REST_S: Final = 60.0
_PATIENCE_S: Final = 0.1
# Frames of answers are bounded, and the table is small.
_ALL: Final = 1 << 20


class TableScenario(ClusterScenario):
    """A cluster with a log under load, a table of it, and those who read the table."""

    def build(self, world: World, storm: Storm) -> None:
        """Start the nodes."""
        self.oracle = TableOracle()
        self._disks: dict[str, TableDisk] = {}
        self._made = 0
        super().build(world, storm)

    def _tables_of(self, name: str, _: ClusterDisk) -> TableWork:
        disk = self._disks.setdefault(name, TableDisk())
        engine = MemoryEngine(disk, self._witness)
        return TableWork(engine, InlineWorker(), InlineWorker(), SETTINGS)

    # What depends on where the engine has its files.

    def _there(self, node: int) -> set[bytes]:
        """Return the tables of which a node has something."""
        return {*self._disks[f"n{node}"].tables}

    def _copies(self) -> int:
        """Return how many copies were put in use."""
        return sum(disk.installed for disk in self._disks.values())

    def _is_whole(self, node: int) -> bool:
        """Tell whether a node has the table, undamaged."""
        disk = self._disks[f"n{node}"]
        return TABLE in disk.tables and TABLE not in disk.rotten

    def _damage(self, random: Random, node: int) -> None:
        """Damage the table of a node."""
        self._disks[f"n{node}"].rotten.add(TABLE)

    def _witness(self, table: bytes, record: object) -> None:
        if table == TABLE:
            self.oracle.applied(table, record)  # type: ignore[arg-type]

    def _begin_clients(self, world: World) -> list[asyncio.Event]:
        readers = [
            self._run(world, name, self._read) for name in ("reader-1", "reader-2")
        ]
        ddl = self._run(world, "ddl", self._change)
        return [*super()._begin_clients(world), *readers, ddl]

    def others(self) -> list[str]:
        """Return the clients."""
        return [*super().others(), "reader-1", "reader-2", "ddl"]

    # --- those who use tables

    async def _create(
        self,
        client: AsyncClient,
        replicas: int,
        table: bytes = TABLE,
        name: str = "colors",
    ) -> None:
        while True:
            try:
                log = (await client._cluster.linearize()).named(_LOG).log
                change = CreateTable(table, table[::-1], name, log, replicas)
                await client._cluster.execute(ChangeTables((change,)))
            except InvalidArgumentError as error:
                if "exists" in error.message or "identity" in error.message:
                    return
                await asyncio.sleep(_PATIENCE_S)
            except LogError:
                await asyncio.sleep(_PATIENCE_S)
            else:
                return

    async def _read(self, life: Life) -> None:
        """Ask hosts, until the storm is over and everything was appended."""
        random, world = life.random, life.world
        async with opened(life, self.shared) as client:
            seen = 0
            while not world.calm.is_set() or self.shared.appending:
                await asyncio.sleep(random.expovariate(1 / _PAUSE_S))
                info = _table_in(client)
                if info is None:
                    continue
                node = random.choice(info.hosts)
                after = random.choice(
                    [0, seen, client._cluster.routes.log(info.log).high_watermark]
                )
                before = self.oracle.newest(node)
                try:
                    answer = await self._ask(client, random, node, after)
                except LogError as error:
                    self.shared.failed(life.name, error)
                    continue
                self.oracle.answered(answer, before)
                seen = max(seen, answer.position)

    async def _ask(
        self, client: AsyncClient, random: Random, node: int, after: int
    ) -> Answer:
        ask: GetRows | ScanRows
        if random.random() < 0.7:
            keys = tuple(random.sample(_KEYS, random.randint(1, len(_KEYS))))
            ask = GetRows(TABLE, keys, 0, after, 1000)
        else:
            ask = ScanRows(TABLE, b"", b"", None, False, _ALL, _ALL, 0, after, 1000)
        rows, payload = await client._cluster.ask_node(node, ask, within=2.0)
        if not isinstance(rows, Rows):
            raise ViolationError(f"{type(rows).__name__} is no answer")
        return _answer(node, ask, rows, payload)

    async def _change(self, life: Life) -> None:
        """Create the table, create and drop others, and damage what disks have."""
        random, world = life.random, life.world
        async with opened(life, self.shared) as client:
            await self._create(client, random.randint(1, 3))
            while not world.calm.is_set():
                await asyncio.sleep(random.expovariate(1 / _DDL_S))
                self._rot_tables(random, client)
                try:
                    await self._race(client, random)
                except InvalidArgumentError:
                    continue  # What was seen has changed before.
                except LogError as error:
                    self.shared.failed("ddl", error)
            await self._clear(client)

    async def _race(self, client: AsyncClient, random: Random) -> None:
        routes = await client._cluster.linearize()
        others = [each for each in routes.metadata.tables if each.table != TABLE]
        if others and random.random() < 0.5:
            dropped = random.choice(others).table
            await client._cluster.execute(ChangeTables((DropTable(dropped),)))
            return
        self._made += 1
        table, tree = (self._made * 2 + each for each in (0, 1))
        change = CreateTable(
            table.to_bytes(16),
            tree.to_bytes(16),
            f"side-{random.randint(1, 2)}",
            routes.named(_LOG).log,
            random.randint(1, 3),
        )
        await client._cluster.execute(ChangeTables((change,)))

    async def _clear(self, client: AsyncClient) -> None:
        while True:
            try:
                routes = await client._cluster.linearize()
                for each in routes.metadata.tables:
                    if each.table != TABLE:
                        drop = ChangeTables((DropTable(each.table),))
                        await client._cluster.execute(drop)
            except NotFoundError:
                continue
            except LogError as error:
                self.shared.failed("ddl", error)
                await asyncio.sleep(_PATIENCE_S)
            else:
                return

    def _rot_tables(self, random: Random, client: AsyncClient) -> None:
        """Damage the table of one host, if another one has all of it."""
        info = _table_in(client)
        if info is None or random.random() > _ROT * 10:
            return
        whole = [node for node in info.joined if self._is_whole(node)]
        if len(whole) > 1:
            self._damage(random, random.choice(whole))

    # --- the judgement

    async def _rest(self, world: World, client: AsyncClient) -> None:
        await super()._rest(world, client)
        since = world.now
        while unrest := await self._unrest(client):
            if world.now - since > _REST_S:
                raise ViolationError(f"tables do not come to rest: {unrest}")
            await asyncio.sleep(_PATIENCE_S)
        while True:
            try:
                await self._compare(client)
            except LogError as error:
                # A connection of before may turn out to be broken.
                self.shared.failed("admin", error)
                await asyncio.sleep(_PATIENCE_S)
            else:
                return

    async def _unrest(self, client: AsyncClient) -> str:
        """Return what hosts have still to do."""
        try:
            routes = await client._cluster.linearize()
        except LogError as error:
            return error.message
        info = _table_in(client)
        if info is None:
            return "the table does not exist yet"
        end = routes.log(info.log).high_watermark
        tables = routes.metadata.tables
        lives = {live.node.id: live.node for live in self.watch.living()}
        for node, live in lives.items():
            assert live.tables is not None, "all nodes keep tables"
            there = self._there(node)
            kept = {status.table: status for status in live.tables.status()}
            wanted = {each.table for each in tables if node in each.hosts}
            if kept.keys() != {each.hex() for each in wanted} or there - wanted:
                return f"node {node} keeps {sorted(kept)}"
            for status in kept.values():
                serves = status.state == HostState.SERVING.value
                if not serves or not status.joined or status.applied != end:
                    return f"node {node} of {end} has {status}"
        return ""

    async def _compare(self, client: AsyncClient) -> None:
        """Ask each host for everything."""
        info = _table_in(client)
        assert info is not None, "it was there"
        end = client._cluster.routes.log(info.log).high_watermark
        for node in info.hosts:
            ask = ScanRows(TABLE, b"", b"", None, False, _ALL, _ALL, 0, end, 5000)
            rows, payload = await client._cluster.ask_node(node, ask, within=8.0)
            if not isinstance(rows, Rows):
                raise ViolationError(f"{type(rows).__name__} is no answer")
            self.oracle.answered(_answer(node, ask, rows, payload))

    def check(self, world: World) -> None:
        """Judge what can only be judged as a whole."""
        super().check(world)
        self.oracle.check()
        copies = self._copies()
        world.note("world", f"{len(self.oracle.answers)} answers, {copies} copies")


def _table_in(client: AsyncClient) -> TableInfo | None:
    tables = client._cluster.routes.metadata.tables
    return next((each for each in tables if each.table == TABLE), None)


def _answer(
    node: int, ask: GetRows | ScanRows, rows: Rows, payload: memoryview
) -> Answer:
    found: dict[bytes, int] = {}
    if rows.positions:
        batch = NativeCodec().open(payload)
        records = batch.records(1, 0, batch.count)
        for record, position in zip(records, rows.positions, strict=True):
            assert record.key is not None, "records without a key are left out"
            found[record.key] = position
    asked = ask.keys if isinstance(ask, GetRows) else None
    return Answer(node, ask.after, rows.position, asked, found)
