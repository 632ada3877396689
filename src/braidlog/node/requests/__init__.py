"""Requests of clients and other nodes, except for appends: answered here or passed on.

Nothing here changes a replica or the repository by itself.
"""
