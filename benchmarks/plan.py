"""The parameters of one run; printed with every result."""

from dataclasses import asdict, dataclass
from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure, with which seed, and where the data goes."""

    directory: Path
    rounds: int = 5
    seed: int = 1
    appends: int = 1_000
    """Durable appends of one caller in a round."""
    callers: int = 64
    rounds_per_caller: int = 200
    """Appends of each concurrent caller in a round."""
    pipelined: int = 100_000
    """Pipelined appends in a round."""
    window: int = 4_096
    """Pipelined appends outstanding at once; the group size of a peer."""
    bulk_batches: int = 64
    """1 MiB batches in a round."""
    records: int = 1_000_000
    """Records behind iteration and lookups."""
    index_records: int = 4_000_000
    """Enough for several sealed segments; an index file comes with sealing."""
    scan_bytes: int = 512 * MIB
    """Bytes of values behind a scan."""
    lookups: int = 20_000
    reopen_small: int = 100 * MIB
    reopen_large: int = GIB
    peer_reopen_large: int = GIB
    """Peers stop here: the slowest writes about 100 MB/s."""

    def parameters(self) -> str:
        """Return everything but the directory, for the header of a result."""
        facts = asdict(self)
        del facts["directory"]
        return " ".join(f"{name}={value}" for name, value in facts.items())

    @property
    def record_bytes(self) -> int:
        """Size of a small value."""
        return 128

    @property
    def bulk_record_bytes(self) -> int:
        """Size of a value written in bulk."""
        return 1024


def quick(directory: Path, seed: int, rounds: int) -> Plan:
    """Return a plan that takes half a minute: shapes, not figures."""
    return Plan(
        directory,
        rounds=rounds,
        seed=seed,
        appends=200,
        rounds_per_caller=10,
        pipelined=20_000,
        bulk_batches=16,
        records=100_000,
        index_records=1_000_000,
        scan_bytes=64 * MIB,
        lookups=5_000,
        reopen_small=16 * MIB,
        reopen_large=160 * MIB,
        peer_reopen_large=160 * MIB,
    )
