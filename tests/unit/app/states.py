"""A state of plain dicts, with a disk that survives it: the other `State`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, MutableMapping
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

import apsw

from braidlog.app.determinism.codec import decode, encode
from braidlog.app.errors import ExecutionError, ResizeRefusedError
from braidlog.app.execution.state import Progress, Resizing, Saved, StoredResult
from braidlog.app.execution.total import TableTally, Tally, total_hash
from braidlog.app.procedure import partition_of
from braidlog.errors import LogError


class Handle(MutableMapping[Any, Any]):
    """A dict that notes what is done to it."""

    def __init__(self, data: dict[Any, Any]) -> None:
        self.data = data
        self.changes: list[Any] = []

    def __getitem__(self, key: Any) -> Any:
        return self.data[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.changes.append(["put", key, value])
        self.data[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[key]
        self.changes.append(["delete", key, None])

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(self.data))

    def __len__(self) -> int:
        return len(self.data)


class DictView:
    """A copy of what was committed."""

    def __init__(self, disk: dict[str, Any]) -> None:
        self._disk = copy.deepcopy(disk)
        self.handle = self._disk["data"]

    def hash(self) -> bytes:
        content = encode([self._disk["data"], self._disk["results"]])
        return blake2b(content, digest_size=16).digest()

    def own_hash(self) -> bytes:
        own = [self._disk.get("progress"), self._disk["waiting"]]
        return blake2b(encode(own), digest_size=16).digest()

    def tally(self) -> Tally:
        table = TableTally()
        for key, value in self._disk["data"].items():
            if key != "schema":
                table.add("data", [key, value])
        schema = encode(self._disk["data"].get("schema"))
        return Tally(schema, {"data": table})

    def size(self) -> int:
        return len(encode(self._disk))

    def copy(self, path: Path) -> None:
        path.write_bytes(encode(self._disk))

    def close(self) -> None:
        pass


class DictPartition:
    """One partition; ``disk`` is what a crash leaves."""

    def __init__(self, disk: dict[str, Any]) -> None:
        self.disk = disk
        for name in ("data", "results", "waiting"):
            disk.setdefault(name, {})
        self.handle = Handle(copy.deepcopy(disk["data"]))
        self._before: dict[Any, Any] = {}
        # What a loss of power may leave: as of each commit since the last sync.
        self.unsynced: list[dict[str, Any]] = [copy.deepcopy(disk)]

    def load(self) -> Progress:
        return Progress(**copy.deepcopy(self.disk.get("progress", {})))

    def kept(self) -> list[tuple[int, bytes, str, bytes]]:
        rows = [StoredResult(*row) for _, row in sorted(self.disk["results"].items())]
        return [(r.position, r.call, r.procedure, r.digest) for r in rows]

    def result(self, position: int) -> StoredResult | None:
        row = self.disk["results"].get(position)
        return StoredResult(*row) if row else None

    def waiting(self, position: int) -> bytes | None:
        found: bytes | None = self.disk["waiting"].get(position)
        return found

    def begin(self) -> None:
        pass

    def mark(self) -> None:
        self._before = dict(self.handle.data)
        self.handle.changes = []

    def spoiled(self) -> Exception | None:
        return None

    def changes(self) -> list[Any]:
        return list(self.handle.changes)

    def release(self) -> list[Any]:
        return list(self.handle.changes)

    def undo(self) -> None:
        self.handle.data = self._before

    def apply(self, changes: list[Any]) -> None:
        for kind, key, value in changes:
            if kind == "put":
                self.handle.data[key] = value
            else:
                del self.handle.data[key]

    def migrate(self, step: str) -> None:
        self.handle.data["schema"] = step

    def commit(self, saved: Saved) -> None:
        disk = self.disk
        disk["data"] = copy.deepcopy(self.handle.data)
        disk["progress"] = asdict(saved.progress)
        disk["results"].update({k.position: list(k) for k in saved.results})
        forgotten = saved.progress.forgotten
        disk["results"] = {p: r for p, r in disk["results"].items() if p > forgotten}
        disk["waiting"].update(saved.waiting)
        disk["waiting"] = {
            p: w for p, w in disk["waiting"].items() if p > saved.settled
        }
        self.unsynced.append(copy.deepcopy(disk))

    def sync(self) -> None:
        del self.unsynced[:-1]

    def lose(self, commits: int) -> None:
        """Lose the last commits, as far as they were not synced."""
        left = self.unsynced[max(0, len(self.unsynced) - 1 - commits)]
        self.disk.clear()
        self.disk.update(copy.deepcopy(left))

    def rollback(self) -> None:
        self.handle = Handle(copy.deepcopy(self.disk["data"]))

    def view(self) -> DictView:
        return DictView(self.disk)

    def close(self) -> None:
        pass


class DictState:
    """All partitions over one disk."""

    failures: tuple[type[Exception], ...] = (apsw.FullError,)

    def __init__(self, disk: dict[int, dict[str, Any]], partitions: int) -> None:
        self.disk = disk
        self.built: list[dict[str, Any]] = []
        shared = disk.get(0, {}).get("progress", {}).get("shared", {})
        self._open(shared.get("partitions", partitions))

    def _open(self, partitions: int) -> None:
        self.partitions = [
            DictPartition(self.disk.setdefault(n, {})) for n in range(partitions)
        ]

    def begin_again(self, partitions: int) -> None:
        self.disk.clear()
        self._open(partitions)

    def build(self, plan: Resizing) -> bytes:
        if "refuse" in plan.row_keys:
            raise ResizeRefusedError("these rows cannot be spread")
        count = len(plan.progress)
        data: list[dict[Any, Any]] = [{} for _ in range(count)]
        for each in self.partitions:
            for key, value in each.disk["data"].items():
                if key != "schema":
                    data[partition_of(key, count)][key] = value
        schema = self.partitions[0].disk["data"].get("schema")
        self.built = [
            {
                "data": rows if schema is None else {**rows, "schema": schema},
                "results": {row.position: list(row) for row in plan.results},
                "waiting": {},
                "progress": copy.deepcopy(asdict(progress)),
            }
            for rows, progress in zip(data, plan.progress, strict=True)
        ]
        return total_hash(DictView(disk).tally() for disk in self.built)

    def adopt(self) -> None:
        self.disk.clear()
        self.disk.update(enumerate(self.built))
        self._open(len(self.built))

    def explained(self, error: Exception, doing: str) -> LogError:
        return ExecutionError(f"{doing}: {error!r}")

    def sync(self) -> None:
        for partition in self.partitions:
            partition.sync()

    def hash_of(self, path: Path) -> bytes:
        return DictView(decode(path.read_bytes())).hash()

    def own_hash_of(self, path: Path) -> bytes:
        return DictView(decode(path.read_bytes())).own_hash()

    def restore(self, partition: int, path: Path) -> None:
        disk = self.partitions[partition].disk
        disk.clear()
        disk.update(decode(path.read_bytes()))
        self.partitions[partition] = DictPartition(disk)

    def close(self) -> None:
        pass
