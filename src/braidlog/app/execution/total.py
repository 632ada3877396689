"""The total hash: the content of all partitions, whichever of them has which row. Pure.

*Definition.* The hash of a row is BLAKE2b-256 over the CBOR of an array: the name of
its table, then the values of its columns in their order, read as a little-endian
number. The sum of a table is the sum of the hashes of its rows modulo 2**256. The total
hash is BLAKE2b-128 over the deterministic CBOR of [schema, [[table, rows, sum], ...]]
with the tables in the order of their names; ``schema`` is the hash of the schema, and a
sum has 32 bytes, little-endian. A table whose rows every partition has alike counts
once. Rowids that are no columns, the counters of AUTOINCREMENT, and results kept for
retries do not count: they depend on which partition a row was in.

*Invariants.* Equal rows have equal hashes, in any order and however they are spread. A
sum of sums is the sum of all, so partitions can be tallied apart. It finds mistakes of
programs and disks; whoever may choose rows can make two sets with one sum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import cbor2

from braidlog.app.determinism.codec import encode

_HASH_BYTES: Final = 16
_ROW_BYTES: Final = 32
_MODULUS: Final = 1 << (8 * _ROW_BYTES)


@dataclass(slots=True)
class TableTally:
    """The rows of a table: how many, and the sum of their hashes."""

    rows: int = 0
    sum: int = 0

    def add(self, table: str, row: Sequence[Any]) -> None:
        """Count one row of the table."""
        digest = blake2b(cbor2.dumps([table, *row]), digest_size=_ROW_BYTES).digest()
        self.rows += 1
        self.sum = (self.sum + int.from_bytes(digest, "little")) % _MODULUS

    def merge(self, other: TableTally) -> None:
        """Count the rows of another partition."""
        self.rows += other.rows
        self.sum = (self.sum + other.sum) % _MODULUS


@dataclass(slots=True)
class Tally:
    """What one partition adds to the total hash."""

    schema: bytes
    """Hash of the schema: the same in every partition."""
    tables: dict[str, TableTally] = field(default_factory=dict)


def total_hash(tallies: Iterable[Tally], everywhere: Collection[str] = ()) -> bytes:
    """Return the 16 bytes that stand for the content of all partitions together.

    Every partition has the same rows of the tables ``everywhere``. Where one has not,
    the hash is none that any equal partitions have.
    """
    schemas: set[bytes] = set()
    tables: dict[str, TableTally] = {}
    alike: dict[str, set[tuple[int, int]]] = {}
    for tally in tallies:
        schemas.add(tally.schema)
        for name, table in tally.tables.items():
            if name in everywhere:
                alike.setdefault(name, set()).add((table.rows, table.sum))
            else:
                tables.setdefault(name, TableTally()).merge(table)
    rows = [[name, [[t.rows, _bytes(t.sum)]]] for name, t in tables.items()]
    for name, found in alike.items():
        rows.append([name, [[count, _bytes(total)] for count, total in sorted(found)]])
    flat = [[name, *pair] for name, pairs in sorted(rows) for pair in pairs]
    content = encode([b"".join(sorted(schemas)), flat])
    return blake2b(content, digest_size=_HASH_BYTES).digest()


def _bytes(total: int) -> bytes:
    return total.to_bytes(_ROW_BYTES, "little")
