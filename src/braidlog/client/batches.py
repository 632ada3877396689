"""Record batches as the client needs them: encoded once, opened when somebody looks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from braidlog import _native
from braidlog.types import Compression, Headers, Producer

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from braidlog._native import Entry, Record


class Columns(NamedTuple):
    """Records by columns; a column that says nothing is None, so it costs nothing."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    timestamps: Sequence[int] | int
    """One for each record, or one for all."""
    headers: Sequence[Headers] | None


class Encoded(NamedTuple):
    """Records that the caller has encoded already, as a batch of his own producer."""

    data: bytes
    records: int


class OpenBatch(Protocol):
    """An encoded batch, checked."""

    @property
    def count(self) -> int:
        """How many records it has."""

    @property
    def timestamps(self) -> tuple[int, int]:
        """The smallest and the largest timestamp."""

    def records(self, position: int, begin: int, end: int) -> Iterable[Record]:
        """Return records ``begin`` to ``end`` of a batch that is at ``position``."""

    def arrow(
        self, position: int, begin: int, end: int, columns: list[str] | None
    ) -> Any:
        """Return the same as an Arrow array with these columns of the log."""


class BatchCodec(Protocol):
    """Encodes and opens batches."""

    def encode(
        self,
        pieces: Sequence[Columns | Entry[Any]],
        producer: Producer,
        sequence: int,
        compression: Compression,
    ) -> bytes:
        """Encode the records of all pieces, in order, as one batch of a producer."""

    def encode_arrow(
        self,
        data: Any,
        producer: Producer,
        sequence: int,
        compression: Compression,
        batch_bytes: int,
    ) -> list[Encoded]:
        """Encode Arrow data as batches of a producer, whose sequences follow.

        Raises:
            InvalidArgumentError: the data are not records; names column and row.
        """

    def origin(self, data: Buffer) -> tuple[Producer, int]:
        """Return who encoded a batch, and the sequence of its first record."""

    def open(self, data: Buffer) -> OpenBatch:
        """Check a batch and give access to it.

        Raises:
            CorruptionError: the bytes are not a batch.
        """


class NativeCodec:
    """Batches as the core stores them."""

    def encode(
        self,
        pieces: Sequence[Columns | Entry[Any]],
        producer: Producer,
        sequence: int,
        compression: Compression,
    ) -> bytes:
        """Encode the records of all pieces, in order, as one batch of a producer."""
        who = (producer.id, producer.epoch)
        return _native.encode_pieces(pieces, who, sequence, compression)

    def encode_arrow(
        self,
        data: Any,
        producer: Producer,
        sequence: int,
        compression: Compression,
        batch_bytes: int,
    ) -> list[Encoded]:
        """Encode Arrow data as batches of a producer, whose sequences follow."""
        who = (producer.id, producer.epoch)
        batches = _native.encode_arrow(data, who, sequence, compression, batch_bytes)
        return [Encoded(each, _native.batch_header(each)[0]) for each in batches]

    def origin(self, data: Buffer) -> tuple[Producer, int]:
        """Return who encoded a batch, and the sequence of its first record."""
        _, _, who, epoch, sequence, *_ = _native.batch_header(data)
        return Producer(who, epoch), sequence

    def open(self, data: Buffer) -> OpenBatch:
        """Check a batch and give access to it."""
        native: Any = _native
        batch: OpenBatch = native.Batch(data)
        return batch
