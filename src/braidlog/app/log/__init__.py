"""The log as a host needs it: in a directory of its own, or in a cluster.

Appending, reading ahead, waiting, cursors, and ending a wait. What records mean is not
known here.
"""
