"""The shards that a node is a member of: their groups, logs and readers.

What a shard decides is in `braidlog.shard`, where it is placed in `braidlog.metarepo`.
"""
