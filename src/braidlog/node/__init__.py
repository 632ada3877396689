"""One process of a cluster: sockets, disk, timers; the decisions are in the cores."""
