"""Record batches as the client needs them: encoded once, opened when somebody looks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from braidlog import _native
from braidlog.types import Compression, Headers, Producer

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from braidlog._native import Record

__all__ = ["BatchCodec", "NativeCodec", "OpenBatch"]


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
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers],
        producer: Producer,
        sequence: int,
        compression: Compression,
    ) -> bytes:
        """Encode records as one batch of a producer."""

    def open(self, data: Buffer) -> OpenBatch:
        """Check a batch and give access to it.

        Raises:
            CorruptionError: the bytes are not a batch.
        """


class NativeCodec:
    """Batches as the core stores them."""

    def encode(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers],
        producer: Producer,
        sequence: int,
        compression: Compression,
    ) -> bytes:
        """Encode records as one batch of a producer."""
        native: Any = _native
        encoded: bytes = native.encode_batch(
            values,
            keys,
            timestamps,
            headers,
            (producer.id, producer.epoch),
            sequence,
            compression,
        )
        return encoded

    def open(self, data: Buffer) -> OpenBatch:
        """Check a batch and give access to it."""
        native: Any = _native
        batch: OpenBatch = native.Batch(data)
        return batch
