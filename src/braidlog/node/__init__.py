"""One process of a cluster: sockets, disk, timers; the decisions are in the cores.

Here is what a node is made of: its settings, the process, the server, `ClusterNode` and
when it flushes and syncs. What has an idea of its own is in a folder; a folder imports
those below it alone:

| folder | what |
|---|---|
| `leader` | what a node tells the leader of the repository unasked |
| `requests` | what clients and other nodes ask, except for appends |
| `replication`, `rescue` | replicas of streams; directories of nodes that are gone |
| `repository` | its member of the metadata repository, and the way to the leader |
| `peers` | the other nodes: where they are, whether it is them, links to them |
| `metrics` | what a node measures, says of itself and logs |
"""
