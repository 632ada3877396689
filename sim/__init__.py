"""The simulation: real asyncio code on virtual time, in a world that fails.

*Theory of operation.* `loop.VirtualLoop` is an asyncio event loop without clock,
selector and threads: when nothing can run, time jumps to the next timer.
`network.Network` gives it connections in memory with delays and faults, `world.World`
nodes that crash, pause and drift, `faults` a seeded schedule of such events. What the
application observes goes to the pure `checkers`. Every decision is drawn from
generators that one seed begins, and all that happens goes through one `trace.Trace`, so
a seed run twice gives the same bytes.
"""
