"""The parameters of one run against clusters; printed with every result."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure, where the data goes, and where the peers are.

    A round of a workload ends after so many appends, or after `seconds` if a system
    does not get as far.
    """

    directory: Path
    peers: Path | None = None
    """Folder with the programs of the peers; else they are looked for on PATH."""
    rounds: int = 5
    seed: int = 1
    seconds: float = 0.6
    single: int = 300
    """Appends one at a time in a round."""
    appends: int = 6_400
    """Appends with many callers in a round."""
    batches: int = 1_024
    """Batches of 100 in a round."""
    large: int = 1_600
    """Appends of 4 KiB in a round."""
    large_batches: int = 320
    """Batches of 16 x 4 KiB in a round."""
    read: int = 50_000
    """Records behind a read from the start."""
    idle_s: float = 3.0
    """How long idle nodes are watched."""
    kills: int = 3
    """Clusters of each system whose leader is killed."""
    priority: int = 0
    """Nice value of the scheduler's group of every process that is measured."""

    def parameters(self) -> str:
        """Return everything but the folders, for the header of a result."""
        facts = asdict(self)
        del facts["directory"], facts["peers"]
        return " ".join(f"{name}={value}" for name, value in facts.items())


def quick(plan: Plan) -> Plan:
    """Return a plan for shapes, not figures."""
    return replace(
        plan,
        seconds=0.3,
        single=60,
        appends=1_280,
        batches=128,
        large=320,
        large_batches=32,
        read=5_000,
        idle_s=1.0,
        kills=1,
    )
