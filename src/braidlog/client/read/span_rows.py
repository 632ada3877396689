"""Parts of encoded batches as Arrow data, with stream and LLSN beside the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from braidlog.client.batches import BatchCodec, OpenBatch
from braidlog.errors import InvalidArgumentError, RemoteProtocolError

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

_ADDED: Final = ("stream", "llsn")


class Part(Protocol):
    """Records ``skip`` to ``skip + count`` of ``data``, a batch of ``size`` records."""

    @property
    def stream(self) -> int:
        """The stream that it is of."""

    @property
    def llsn(self) -> int:
        """LLSN of the first record of the part."""

    @property
    def glsn(self) -> int:
        """Its position in the log."""

    @property
    def skip(self) -> int:
        """Records of the batch before it."""

    @property
    def count(self) -> int:
        """Records of the part."""

    @property
    def size(self) -> int:
        """Records of the batch."""

    @property
    def data(self) -> Buffer:
        """The encoded batch."""


def rows_of(
    codec: BatchCodec,
    part: Part,
    *,
    columns: list[str],
    since: int | None = None,
    until: int | None = None,
) -> pa.RecordBatch | None:
    """Return the records of a part; None if their batch has none in that time.

    ``columns`` may name ``stream`` and ``llsn`` beside those of a log.

    Raises:
        CorruptionError: the bytes are not a batch.
        RemoteProtocolError: the batch is not the one that was announced.
        InvalidArgumentError: there is no such column.
    """
    batch = codec.open(part.data)
    if batch.count != part.size:
        msg = f"a batch of {batch.count} records came as one of {part.size}"
        raise RemoteProtocolError(msg)
    if not _is_in_time(batch, since, until):
        return None
    stored = [name for name in columns if name not in _ADDED]
    # The LLSN is counted from the position.
    names = list(dict.fromkeys(["position", *stored]))
    position, last = part.glsn - part.skip, part.skip + part.count
    return with_places(batch.arrow(position, part.skip, last, names), columns, part)


def _is_in_time(batch: OpenBatch, since: int | None, until: int | None) -> bool:
    first, last = batch.timestamps
    late = until is not None and first >= until
    return not late and (since is None or last >= since)


def with_places(rows: object, columns: list[str], span: Part) -> pa.RecordBatch:
    """Add stream and LLSN, and bring the columns into their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    batch = pa.record_batch(rows)
    arrays = []
    for name in columns:
        if name == "stream":
            arrays.append(pa.repeat(pa.scalar(span.stream, pa.int64()), len(batch)))
        elif name == "llsn":
            arrays.append(pc.subtract(batch.column("position"), span.glsn - span.llsn))
        elif name in batch.schema.names:
            arrays.append(batch.column(name))
        else:
            raise InvalidArgumentError(f"column {name!r} does not exist")
    return pa.RecordBatch.from_arrays(arrays, columns)
