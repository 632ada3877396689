"""Disks that are slow for a while: who leaves the streams, who does not, who returns.

`plans` says which disks are slow when, `scenario` runs a cluster under steady load
through it and judges, `failover` looks whom the end of one node concerns.
"""
