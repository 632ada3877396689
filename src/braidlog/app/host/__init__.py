"""A host: the thread that executes a log on a state, and the calls that wait for it.

Here are the threads, locks and clocks of an application: the active role and its
promotion, the watchdog, leases, and opening over a directory or a cluster. What a
command does is decided in `execution`.
"""
