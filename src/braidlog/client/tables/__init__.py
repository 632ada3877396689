"""Tables of a cluster: asking the nodes that keep them.

`calls` is what the tables of a client share, `hosts` finds a node that answers and
keeps positions readable, `reads` puts answers together, `upkeep` has all hosts flush or
verify, `table` has the calls of programs, `change` gathers changes for one command, and
`blocking` derives the calls for blocking code.
"""
