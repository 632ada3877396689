"""The client of a cluster: exactly-once appends, ordered reads, commands."""

from braidlog.client.blocking import BlockingClient, BlockingClusterLog, connect_sync
from braidlog.client.client import Client, connect
from braidlog.client.cursor import ClusterCursor
from braidlog.client.kept import ClusterLogDescription
from braidlog.client.log import ClusterLog
from braidlog.client.settings import ClientSettings

__all__ = [
    "BlockingClient",
    "BlockingClusterLog",
    "Client",
    "ClientSettings",
    "ClusterCursor",
    "ClusterLog",
    "ClusterLogDescription",
    "connect",
    "connect_sync",
]
