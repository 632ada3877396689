"""What a run of the demo proved and measured."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from examples.demo.events import shown
from examples.demo.supervisor import Failover, Kill

__all__ = ["Check", "DemoReport", "Measurement"]


@dataclass(frozen=True, slots=True)
class Check:
    """Something that must hold, and what was found."""

    name: str
    passed: bool
    finding: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """A figure with its unit."""

    name: str
    value: float
    unit: str


@dataclass(slots=True)
class DemoReport:
    """The outcome: ``passed`` only if every single check holds."""

    origin: str
    events: int = 0
    kills: list[Kill] | list[Failover] = field(default_factory=list)
    resent: int = 0
    lost: int = 0
    doubled: int = 0
    checks: list[Check] = field(default_factory=list)
    measurements: list[Measurement] = field(default_factory=list)
    months: Counter[tuple[str, str]] = field(default_factory=Counter)
    top: list[tuple[bytes, int]] = field(default_factory=list)
    counted_by: str = "replay"
    files: list[Path] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Tell whether all that was checked holds."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def check(self, name: str, passed: bool, finding: str) -> None:
        """Note a check."""
        self.checks.append(Check(name, passed, finding))

    def measure(self, name: str, value: float, unit: str) -> None:
        """Note a figure."""
        self.measurements.append(Measurement(name, value, unit))

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "passed": self.passed,
            "origin": self.origin,
            "events": self.events,
            "kills": [asdict(kill) for kill in self.kills],
            "resent": self.resent,
            "lost": self.lost,
            "doubled": self.doubled,
            "checks": [asdict(check) for check in self.checks],
            "measurements": [asdict(figure) for figure in self.measurements],
            "changes_per_month": [
                {"source": source, "month": month, "changes": count}
                for (source, month), count in sorted(self.months.items())
            ],
            "top_paths": [
                {"path": shown(key), "changes": count} for key, count in self.top
            ],
            "counted_by": self.counted_by,
            "files": [str(path) for path in self.files],
        }
