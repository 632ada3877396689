"""A log that one Raft group replicates: a majority acknowledges, one writer may own it.

`ShardMember` is one member of the group without input and output, over `RaftNode`;
`ShardState` is its state machine. `docs/design/0021-shards.md` has the decisions.
Source: the log service of MatrixOne.
"""

from braidlog.shard.member import ShardEffects, ShardMember, ShardSettings
from braidlog.shard.state import ShardState

__all__ = ["ShardEffects", "ShardMember", "ShardSettings", "ShardState"]
