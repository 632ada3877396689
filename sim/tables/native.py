"""The scenario of tables with the engine of the core, on the disks of the nodes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from braidlog.client.batches import NativeCodec
from braidlog.node.tables.engine import LogPiece
from braidlog.node.tables.native_engine import HostedNativeTable, NativeEngine
from braidlog.node.tables.tables import TableWork
from braidlog.node.tables.worker import InlineWorker
from braidlog.wire.tables import TableInfo
from sim.tables.engine import Witness
from sim.tables.files import DiskFiles
from sim.tables.scenario import SETTINGS, TABLE, TableScenario

if TYPE_CHECKING:
    from braidlog._native import HostedTable
    from sim.cluster.disk import ClusterDisk

__all__ = ["NativeTableScenario"]

_ROOT: Final = "/node/tables"
_CODEC: Final = NativeCodec()


class _Witnessed(HostedNativeTable):
    """Tells of each record that it applies."""

    def __init__(self, native: HostedTable, table: bytes, witness: Witness) -> None:
        super().__init__(native)
        self._table = table
        self._witness = witness

    def apply(self, pieces: Sequence[LogPiece]) -> None:
        """Apply what the log has next, and tell of it."""
        before = self.applied
        super().apply(pieces)
        for piece in pieces:
            batch = _CODEC.open(piece.batch)
            first, end = piece.first - piece.skip, piece.skip + piece.records
            for record in batch.records(first, piece.skip, end):
                if record.position > before:
                    self._witness(self._table, record)


class _Engine(NativeEngine):
    """Opens tables that tell of what they apply."""

    def __init__(self, disk: ClusterDisk, witness: Witness) -> None:
        self.on_disk = DiskFiles(disk.native, _ROOT)
        super().__init__(Path(_ROOT), files=self.on_disk, disk=disk.native)
        self._told = witness

    def open(self, table: TableInfo, first: int) -> HostedNativeTable:
        """Open a table."""
        opened = super().open(table, first)
        return _Witnessed(opened._native, table.table, self._told)


class NativeTableScenario(TableScenario):
    """The same, with what a node really keeps tables with."""

    def build(self, world: Any, storm: Any) -> None:
        """Start the nodes."""
        self._engines: dict[str, _Engine] = {}
        self._installed = 0
        self._hurt: dict[int, int] = {}
        super().build(world, storm)

    def _tables_of(self, name: str, disk: ClusterDisk) -> TableWork:
        if name in self._engines:
            self._installed += self._engines[name].on_disk.installed
        engine = self._engines[name] = _Engine(disk, self._witness)
        return TableWork(engine, InlineWorker(), InlineWorker(), SETTINGS)

    def _there(self, node: int) -> set[bytes]:
        return {*self._engines[f"n{node}"].on_disk.tables()}

    def _copies(self) -> int:
        now = sum(engine.on_disk.installed for engine in self._engines.values())
        return self._installed + now

    def _damage(self, random: Random, node: int) -> None:
        """Flip a bit of a run; who has read the page before does not see it."""
        files = self._engines[f"n{node}"].on_disk
        disk, below = files.disk, files.path(TABLE)
        runs = [
            (path, size)
            for path, size in disk.files()
            if path.startswith(below) and path.endswith(".run")
        ]
        if runs:
            path, size = random.choice(runs)
            disk.flip_bit(path, random.randrange(size))
            self._hurt[node] = files.installed

    def _is_whole(self, node: int) -> bool:
        files = self._engines[f"n{node}"].on_disk
        # A copy that came since has taken the place of what is damaged.
        healed = files.installed != self._hurt.get(node, files.installed - 1)
        return healed and TABLE in self._there(node)
