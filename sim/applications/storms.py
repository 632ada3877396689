"""Storms over hosts and the cluster below them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from sim.cluster.storms import STORMS as OF_CLUSTERS
from sim.faults import Storm

__all__ = ["STORMS"]

_SECONDS = 4.0
_LASTS_S = (0.05, 1.0)
_KILLS = {"crash": 3, "power": 3}

_OWN = (
    # Hosts and nodes die all the time, and are soon back.
    Storm("kills", _KILLS, seconds=_SECONDS, every_s=0.2, lasts_s=_LASTS_S),
    Storm(
        "blackouts",
        {"blackout": 2, "outage": 1, "power": 1},
        seconds=_SECONDS,
        every_s=0.6,
        lasts_s=_LASTS_S,
    ),
    # Hosts that were replaced do not know it yet.
    Storm(
        "fences",
        {"isolate": 2, "sever": 2, "pause": 2},
        seconds=_SECONDS,
        every_s=0.3,
        lasts_s=(0.3, 1.5),
    ),
)
_TAKEN = ("calm", "partitions", "connections", "crashes", "disks", "clocks", "all")
STORMS: Mapping[str, Storm] = MappingProxyType(
    {
        **{name: replace(OF_CLUSTERS[name], seconds=_SECONDS) for name in _TAKEN},
        **{storm.name: storm for storm in _OWN},
    }
)
