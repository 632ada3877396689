"""Reading a log of a cluster: its streams merged into one order, or scanned one by one.

`Merge` and the windows of a backward read decide, and are pure; `MergeReader` and the
scan have the tasks. Nothing here appends.
"""
