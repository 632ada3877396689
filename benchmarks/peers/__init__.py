"""Other stores on the same workloads, with the same durability."""

from benchmarks.peers.lmdb import LmdbPeer
from benchmarks.peers.protocol import Peer
from benchmarks.peers.rocksdb import RocksdbPeer
from benchmarks.peers.sqlite import SqlitePeer

PEERS: tuple[type[Peer], ...] = (SqlitePeer, RocksdbPeer, LmdbPeer)

__all__ = ["PEERS", "LmdbPeer", "Peer", "RocksdbPeer", "SqlitePeer"]
