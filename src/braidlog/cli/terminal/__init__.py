"""How facts look on a terminal and as JSON: tables, records, numbers, progress.

Nothing here opens a log or asks a node.
"""
