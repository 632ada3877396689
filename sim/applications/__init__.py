"""Applications in the simulation: real hosts over a simulated cluster and disk.

What runs is `braidlog.app.serve.process` with everything below it: threads, SQLite,
snapshots, listeners. Its threads are those of `sim.threads`, its files lie on a
`disk.HostDisk`.
"""
