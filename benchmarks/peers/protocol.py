"""What a peer must do; as with ours, an append is on the device before it returns."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

import pyarrow as pa


class Peer(Protocol):
    """A store of values by dense integer position, from 1."""

    name: ClassVar[str]
    note: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        """Open the store in `directory`, creating it if it is not there."""
        ...

    def append_one(self, value: bytes) -> None:
        """Append one value; durable on return."""
        ...

    def append_group(self, values: Sequence[bytes]) -> None:
        """Append values in one transaction; durable on return."""
        ...

    def scan(self) -> Iterator[bytes]:
        """Iterate over all values in order."""
        ...

    def pairs(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over all positions and values in order."""
        ...

    def scan_arrow(self) -> Iterator[pa.Array]:
        """Iterate over all values in order, as Arrow arrays."""
        ...

    def get(self, position: int) -> bytes:
        """Return the value at a position."""
        ...

    def last(self) -> int:
        """Return the newest position, 0 when empty; touches the store."""
        ...

    def close(self) -> None:
        """Close the store."""
        ...
