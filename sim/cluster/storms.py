"""Storms over a cluster: those of any scenario, shorter and denser, and its own.

A cluster does much in a second. What is lost, delayed or repeated by itself here are
messages that a replica must not depend on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from braidlog.wire.messages import Commit, Configure, Replicate
from sim import faults
from sim.faults import Storm
from sim.frames import FrameFaults

__all__ = ["SHARD_STORMS", "STORMS"]

_SECONDS = 4.0
_CALM_SECONDS = 1.5
_EVERY_S = 0.35
_LASTS_S = (0.05, 3.0)


def _denser(storm: Storm) -> Storm:
    seconds = _SECONDS if storm.weights else _CALM_SECONDS
    every_s = min(storm.every_s, _EVERY_S)
    return replace(storm, seconds=seconds, every_s=every_s, lasts_s=_LASTS_S)


_OUTAGES = {"outage": 3, "slow disk": 3, "power": 1, "reset": 1}
# Slow syncs leave long tails that are not committed when an epoch ends.
_EPOCHS = {"sever": 2, "pause": 2, "isolate": 1, "reset": 1, "slow disk": 4}
# A primary that was replaced goes on for a while, and its messages come late.
_LATE = FrameFaults(
    repeat=0.1,
    delay=0.2,
    delay_max=1.0,
    kinds=frozenset({Replicate.KIND, Commit.KIND}),
)
# A replica hears of cuts and not of the epochs they are of.
_UNHEARD = frozenset({Configure.KIND})
_DEAF = {**_EPOCHS, "deaf": 6}
# Disks that are full until segments end, of which there is one in advance.
_FULL = Storm(
    "full",
    {"full disk": 6, "slow disk": 1, "power": 1},
    seconds=10.0,
    every_s=1.0,
    lasts_s=(2.0, 9.0),
    segment_bytes=64 << 10,
)

# Clients whose appends wait in line for room, and readers that come and go.
_CROWDED = {"reset": 3, "pause": 2, "crash": 1, "isolate": 1}

# Damage that shows when a node reads it: once it has nothing in memory any more, and
# while there are too few others.
_ROT = Storm(
    "rot",
    {"rot": 6, "crash": 4, "power": 2, "pause": 1},
    seconds=8.0,
    every_s=0.4,
    lasts_s=_LASTS_S,
    segment_bytes=64 << 10,
)

# Nothing breaks, so that clients that do their work have to get on all the time.
_STRANGERS = Storm("strangers", {}, seconds=6.0, strangers=5)
# Elections and epochs under the same load.
_SIEGE = Storm(
    "siege",
    {"crash": 2, "isolate": 1, "pause": 1, "reset": 1},
    seconds=6.0,
    every_s=0.8,
    lasts_s=(0.1, 2.0),
    strangers=5,
)

# Streams come and go under clients that hear late, with primaries that change.
_CHANGES = Storm(
    "changes",
    {"pause": 2, "reset": 2, "isolate": 1, "crash": 1, "slow disk": 2},
    seconds=6.0,
    every_s=0.5,
    lasts_s=(0.05, 1.5),
    actions=("streams", "streams", "streams", "trim", "seal", "move"),
)

# Directories are lost for good, while members of a shard come and go.
_LOSSES = Storm(
    "losses",
    {"pause": 1, "reset": 1, "crash": 1, "slow disk": 1},
    seconds=10.0,
    every_s=1.5,
    lasts_s=(0.05, 1.5),
    actions=("lose", "lose", "lose", "move", "drain", "trim", "grow"),
)

_OWN = (
    Storm("crowded", _CROWDED, outstanding_bytes=500),
    Storm("outages", _OUTAGES, every_s=0.8),
    Storm("epochs", _EPOCHS, frames=_LATE),
    Storm("deaf", _DEAF, unheard=_UNHEARD),
)
STORMS: Mapping[str, Storm] = MappingProxyType(
    {
        **{name: _denser(storm) for name, storm in faults.STORMS.items()},
        **{storm.name: _denser(storm) for storm in _OWN},
        _FULL.name: _FULL,
        _ROT.name: _ROT,
        _STRANGERS.name: _STRANGERS,
        _SIEGE.name: _SIEGE,
        _CHANGES.name: _CHANGES,
    }
)

_NOT_OF_SHARDS = ("changes",)
SHARD_STORMS: Mapping[str, Storm] = MappingProxyType(
    {
        **{name: storm for name, storm in STORMS.items() if name not in _NOT_OF_SHARDS},
        _LOSSES.name: _LOSSES,
    }
)
"""Without changes of streams, of which a shard has one."""
