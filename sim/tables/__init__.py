"""Tables of simulated nodes: a dumb engine in memory, and a storm for their hosts."""
