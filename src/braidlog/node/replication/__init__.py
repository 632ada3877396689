"""The replicas of a node: storage, reads that wait, scrubbing.

The rules of a replica are in `braidlog.logstream`; here is what drives it. Nothing here
knows of leaders or of the repository's Raft group.
"""
