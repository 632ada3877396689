"""Calling an application whose hosts are in other processes, over a network."""
