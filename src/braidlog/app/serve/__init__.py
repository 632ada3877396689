"""The process of a host that others call: requests, status, metrics, signals.

Sockets, TLS and tokens come from `braidlog.serving`; what a call does is the host's.
"""
