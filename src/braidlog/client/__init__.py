"""The client of a cluster: exactly-once appends, ordered reads, commands."""

from braidlog.client.blocking import Client, ClusterLog, connect
from braidlog.client.client import AsyncClient, connect_async
from braidlog.client.cursor import AsyncClusterCursor
from braidlog.client.kept import ClusterLogDescription
from braidlog.client.log import AsyncClusterLog
from braidlog.client.settings import ClientSettings

__all__ = [
    "AsyncClient",
    "AsyncClusterCursor",
    "AsyncClusterLog",
    "Client",
    "ClientSettings",
    "ClusterLog",
    "ClusterLogDescription",
    "connect",
    "connect_async",
]
