"""The parameters of one run; printed with every result."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path

MASTER = "local[2]"
WORKERS = 2
"""Processes of a pipeline without Spark, and threads of a peer: as many as there."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure, with which seed, and where the data goes."""

    directory: Path
    rounds: int = 3
    seed: int = 1
    sizes: tuple[int, ...] = (1_000_000, 4_000_000, 16_000_000)
    """Records of the logs that are scanned and compacted."""
    record_bytes: int = 100
    records_per_key: int = 10
    large_records: int = 400_000
    large_bytes: int = 1_000
    sink_records: int = 1_000_000
    triggers: int = 15
    """Appends, one at a time, through a streaming query in a round."""
    commands: int = 40_000
    """Commands in a log that is replayed."""
    skewed_records: int = 3_000_000
    """Records of a log of a cluster, nine tenths of them in one stream."""
    streams: int = 4

    def parameters(self) -> str:
        """Return everything but the directory, for the header of a result."""
        facts = asdict(self)
        del facts["directory"]
        return " ".join(f"{name}={value}" for name, value in facts.items())


def quick(plan: Plan) -> Plan:
    """Return a plan for shapes, not figures."""
    return replace(
        plan,
        sizes=(50_000, 200_000),
        large_records=20_000,
        sink_records=50_000,
        triggers=3,
        commands=2_000,
        skewed_records=200_000,
    )
