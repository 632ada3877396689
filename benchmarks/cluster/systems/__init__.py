"""The systems that are compared, by name."""

from benchmarks.cluster.systems import braidlog, chain, etcd, kafka, nats, redis
from benchmarks.cluster.systems.system import System

FLOOR, OURS = "chain", "braidlog"

SYSTEMS: dict[str, System] = {
    FLOOR: chain.SYSTEM,
    OURS: braidlog.SYSTEM,
    "etcd": etcd.SYSTEM,
    "nats": nats.SYNCED,
    "kafka": kafka.FLUSHED,
    "redis": redis.SYSTEM,
    "nats unsynced": nats.UNSYNCED,
    "kafka unflushed": kafka.UNFLUSHED,
}

PEERS = ("etcd", "nats", "kafka", "redis")
"""Those that have a record on their disks before they answer, as ours."""

BESIDE = ("nats unsynced", "kafka unflushed")
"""Those that promise less: shown, and compared with nothing."""
