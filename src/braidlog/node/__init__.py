"""The process of a cluster node: its disk, its connections, its replicas and groups."""
