"""The other nodes: where they are, which directory each one has, and the links to them.

Nothing here knows what the messages mean.
"""
