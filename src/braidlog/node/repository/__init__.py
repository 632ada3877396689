"""A node's member of the metadata repository, and the way to the leader of it.

The state machine is in `braidlog.metarepo`, Raft in `braidlog.raft`.
"""
