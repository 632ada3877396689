"""The client of a cluster: exactly-once appends, ordered reads, commands.

Here are the calls of programs, a client and its logs. `append` and `read` do them, each
over `connection`, and neither knows the other. Whatever is the same for an embedded log
is in `braidlog.store`.
"""

from braidlog.client.append.writer import AsyncLogWriter
from braidlog.client.blocking import Client, ClusterLog, LogWriter, connect
from braidlog.client.client import AsyncClient, connect_async
from braidlog.client.description import ClusterLogDescription
from braidlog.client.log import AsyncClusterLog
from braidlog.client.settings import ClientSettings

__all__ = [
    "AsyncClient",
    "AsyncClusterLog",
    "AsyncLogWriter",
    "Client",
    "ClientSettings",
    "ClusterLog",
    "ClusterLogDescription",
    "LogWriter",
    "connect",
    "connect_async",
]
