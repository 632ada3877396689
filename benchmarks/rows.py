"""Result rows: ours beside the floor and the best peer, judged against a target."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Self


class Better(StrEnum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


class Against(StrEnum):
    """What a target compares our figure with."""

    FLOOR = "x floor"
    VALUE = ""


@dataclass(frozen=True, slots=True)
class Target:
    """A promise about our figure: a multiple of the floor, or a plain value."""

    bound: float
    against: Against = Against.FLOOR

    def text(self, better: Better, unit: str) -> str:
        """Return the promise for a reader, such as ``<= 1.25 x floor``."""
        sign = "<=" if better is Better.LOWER else ">="
        what = self.against.value or unit
        return f"{sign} {self.bound:,.10g} {what}"

    def met(
        self, better: Better, ours: float | None, ratio_to_floor: float | None
    ) -> bool | None:
        """Tell whether the promise holds; None when there is nothing to judge."""
        figure = ratio_to_floor if self.against is Against.FLOOR else ours
        if figure is None:
            return None
        return figure <= self.bound if better is Better.LOWER else figure >= self.bound


@dataclass(frozen=True, slots=True)
class Row:
    """One workload and metric; ratios are medians over the rounds."""

    workload: str
    metric: str
    ours: float | None
    floor: float | None
    floor_name: str | None
    floor_spread: tuple[float, float] | None
    best_peer: float | None
    best_peer_name: str | None
    ratio_to_floor: float | None
    ratio_to_peer: float | None
    target: str
    met: bool | None
    ahead: bool | None
    """Whether ours beats the best peer; None where there is nothing to compare."""
    unit: str
    better: Better
    spread_to_floor: tuple[float, float] | None
    spread_to_peer: tuple[float, float] | None
    peers: dict[str, float]
    note: str
    beside: dict[str, float] = field(default_factory=dict)
    """Figures of others that promise less."""

    @property
    def missed(self) -> bool:
        """Whether the target or the best peer is missed."""
        return self.met is False or self.ahead is False

    @property
    def unmeasured(self) -> bool:
        """Whether there is a target but no figure to judge."""
        return bool(self.target) and self.met is None

    def as_json(self) -> dict[str, object]:
        """Return the row as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the row that `as_json` gave, after it was read as JSON."""
        spreads = {
            name: None if values[name] is None else (*values[name],)
            for name in ("floor_spread", "spread_to_floor", "spread_to_peer")
        }
        return cls(**{**values, **spreads, "better": Better(values["better"])})
