"""The fault log of a node, and what a rescue reads from directories and leaves in them.

Nothing here needs a node that runs.
"""
