"""Context managers whose block ends with their `close`.

What entering does differs, so an asyncio class says it itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closable(ABC):
    """Something that is closed where its ``with`` block ends."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release what this holds."""

    def __enter__(self) -> Self:
        """Return this."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close this, also after an error."""
        self.close()


class AsyncClosable(ABC):
    """Something that is closed where its ``async with`` block ends."""

    __slots__ = ()

    @abstractmethod
    async def close(self) -> None:
        """Release what this holds."""

    async def __aexit__(self, *_: object) -> None:
        """Close this, also after an error."""
        await self.close()
