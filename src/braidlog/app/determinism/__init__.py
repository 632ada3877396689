"""Which code a procedure is, and what it may reach. Pure.

The hash of its code, the lint of its source, the guard under which it runs, the
encoding of its arguments and results. Nothing here knows a log, a state or a host.
"""
