"""The parameters of one run; printed with every result."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure, with which seed, and where the data goes."""

    directory: Path
    rounds: int = 3
    seed: int = 1
    keys: int = 10_000_000
    """Keys of 16 bytes with values of 100 bytes."""
    group: int = 10_000
    """Records of one durable write while a store is filled."""
    updates: int = 500_000
    """Random keys that are written again in a round."""
    update_group: int = 1_000
    gets: int = 50_000
    many: int = 1_000
    """Keys of one call that looks up many."""
    many_calls: int = 50
    indexed: int = 2_000_000
    """Records behind an index that is built."""
    appends: int = 2_000
    """Durable appends of one caller in a round."""
    reopen_small: int = 100 * MIB
    reopen_large: int = 10 * GIB
    backup_bytes: int = 10 * GIB

    def parameters(self) -> str:
        """Return everything but the directory, for the header of a result."""
        facts = asdict(self)
        del facts["directory"]
        return " ".join(f"{name}={value}" for name, value in facts.items())


def quick(plan: Plan) -> Plan:
    """Return a plan for shapes, not figures."""
    return replace(
        plan,
        keys=200_000,
        updates=20_000,
        gets=5_000,
        many_calls=10,
        indexed=100_000,
        appends=200,
        reopen_small=16 * MIB,
        reopen_large=160 * MIB,
        backup_bytes=160 * MIB,
    )
