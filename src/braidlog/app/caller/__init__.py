"""Calling an application whose hosts are in other processes, over a network.

Here are the connections to hosts and the retries. What a call does is the host's.
"""
