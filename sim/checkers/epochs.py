"""Epochs of streams: they never fall, and each is one configuration."""

from __future__ import annotations

from collections.abc import Sequence

from sim.errors import ViolationError

__all__ = ["EpochChecker"]


class EpochChecker:
    """Checker of what nodes say about the epochs of streams."""

    def __init__(self) -> None:
        """Begin with no stream."""
        self._configurations: dict[tuple[int, int], tuple[tuple[int, ...], int]] = {}
        self._entered: dict[tuple[str, int], int] = {}

    def decided(
        self, stream: int, epoch: int, replicas: Sequence[int], start: int
    ) -> None:
        """Note the configuration of an epoch, from whoever has it."""
        configuration = (tuple(replicas), start)
        known = self._configurations.setdefault((stream, epoch), configuration)
        if known != configuration:
            what = f"epoch {epoch} of stream {stream}"
            raise ViolationError(f"{what} is {configuration} and {known}")
        before = self._configurations.get((stream, epoch - 1))
        if before is not None and start < before[1]:
            what = f"epoch {epoch} of stream {stream} starts at {start}"
            raise ViolationError(f"{what}, the one before at {before[1]}")

    def entered(self, node: str, stream: int, epoch: int) -> None:
        """Note the epoch a node is durably in; restarts do not take it back."""
        before = self._entered.get((node, stream), 0)
        if epoch < before:
            what = f"{node} falls back to epoch {epoch} of stream {stream}"
            raise ViolationError(f"{what} from {before}")
        self._entered[node, stream] = epoch
