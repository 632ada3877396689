"""The metadata repository: what the nodes of a cluster agree on."""
