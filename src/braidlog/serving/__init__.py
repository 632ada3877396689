"""Serving others over sockets, for the processes of nodes and of applications.

Sessions over TCP and TLS, places for connections, tokens, HTTP for metrics and health,
JSON logs, signals, file descriptors. Nothing here knows the messages of a log or of an
application, or decides what a request means: a `sessions.Handler` does that.
"""
