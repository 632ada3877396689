"""The parameters of one run; printed with every result."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure, with which seed, and where the data goes."""

    directory: Path
    rounds: int = 5
    seed: int = 1
    callers: int = 64
    calls_per_caller: int = 100
    """Calls of each concurrent caller in a round."""
    commands: int = 30_000
    """Commands in a log that is replayed."""
    rows: int = 100
    """Rows that a procedure on many rows changes."""
    wide_calls: int = 1_000
    """Calls of that procedure in a round."""
    recovery: tuple[int, ...] = (5_000, 20_000, 80_000)
    """Commands in logs that are recovered."""
    tail: int = 1_000
    """Commands behind the snapshot of a recovery that has one."""

    def parameters(self) -> str:
        """Return everything but the directory, for the header of a result."""
        facts = asdict(self)
        del facts["directory"]
        return " ".join(f"{name}={value}" for name, value in facts.items())


def quick(plan: Plan) -> Plan:
    """Return a plan for shapes, not figures."""
    return replace(
        plan,
        calls_per_caller=10,
        commands=1_000,
        wide_calls=50,
        recovery=(300, 1_200),
        tail=100,
    )
