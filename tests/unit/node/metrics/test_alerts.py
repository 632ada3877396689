"""The alerts fire on the states that they are for, and on no other; the dashboard asks
for nothing that no node exports; the document explains each alert."""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.node.metrics.latency import Histogram
from braidlog.wire.messages import StreamStatus
from unit.node.observed import Series, log, metadata, observed, series, status, stream
from unit.node.promql import World, evaluate, names

# By way of another package; it has no types.
yaml: Any = importlib.import_module("yaml")
FILES = Path(braidlog.__file__).parent / "monitoring"
OPERATING = Path(__file__).parents[4] / "docs" / "operating" / "cluster.md"
[GROUP] = yaml.safe_load((FILES / "alerts.yml").read_text())["groups"]
RULES: dict[str, str] = {rule["alert"]: rule["expr"] for rule in GROUP["rules"]}
PANELS = json.loads((FILES / "dashboard.json").read_text())["panels"]
EXPRESSIONS = [*RULES.values()] + [
    target["expr"].replace("$job", "braidlog")
    for panel in PANELS
    for target in panel["targets"]
]

WELL = status(waiting={"appends": 0, "reads": 2, "requests": 0, "answer_bytes": 0})
SHORT = stream(replicas=(1, 2), in_sync=(1, 2), learners=(3,))
FAST = Histogram()
FAST.observe(0.002, 100)
SLOW = Histogram()
SLOW.observe(20.0, 100)
KINDS = ("append", "sync", "cut", "read")


def leader(**changes: Any) -> Series:
    given = {"status": WELL, "latencies": dict.fromkeys(KINDS, FAST)} | changes
    return series(observed(**given))


def follower(**changes: Any) -> Series:
    assert WELL.group is not None
    group = replace(WELL.group, role="follower", lags={})
    return leader(status=replace(WELL, node=2, group=group), metadata=None, **changes)


def world(**changes: Any) -> World:
    """Have a leader with these changes, and a follower that is well."""
    return World(
        {"a": leader(**changes), "b": follower()},
        {"a": leader(latencies=dict.fromkeys(KINDS, Histogram())), "b": follower()},
    )


def counted(**totals: float) -> World:
    return world(status=replace(WELL, counters=WELL.counters | totals))


def slow(kind: str) -> World:
    return world(latencies=dict.fromkeys(KINDS, FAST) | {kind: SLOW})


def fires(seen: World) -> set[str]:
    return {name for name, expression in RULES.items() if evaluate(expression, seen)}


def lagging(lacks: int) -> World:
    assert WELL.group is not None
    return world(status=replace(WELL, group=replace(WELL.group, lags={3: lacks})))


def near_full(**changes: int) -> World:
    return world(status=replace(WELL, storage=WELL.storage | changes))


def without_leader() -> World:
    assert WELL.group is not None
    group = replace(WELL.group, leader=0, lags={})
    lost = replace(WELL, leader=0, ready=False, group=group)
    return World({"a": leader(status=lost, metadata=None)})


CASES: dict[str, tuple[World, set[str]]] = {
    "well": (world(), set()),
    "sealed": (world(metadata=metadata(log("x", stream(status=StreamStatus.SEALED)))),
        set()),
    "nobody": (World({}), {"BraidlogSilent"}),
    "broken": (world(status=replace(WELL, healthy=False)), {"BraidlogUnhealthy"}),
    "not ready": (world(status=replace(WELL, ready=False)), {"BraidlogNotReady"}),
    "no leader": (without_leader(), {"BraidlogNoLeader", "BraidlogNotReady"}),
    "node down": (world(metadata=metadata(log("x", stream(replicas=(1, 2), learners=(),
        in_sync=(1, 2))), down=[3])), {"BraidlogNodeDown", "BraidlogReplicasMissing"}),
    "node slow": (world(metadata=metadata(slow=[2])), {"BraidlogNodeSlow"}),
    "waits": (world(metadata=metadata(log("x", stream(in_sync=(1, 2))), down=[3])),
        {"BraidlogNodeDown", "BraidlogReplicasMissing", "BraidlogStreamsUnavailable"}),
    "no primary": (world(metadata=metadata(log("x", stream(replicas=(3, 1, 2),
        in_sync=(1, 2))), down=[3])), {"BraidlogNodeDown", "BraidlogReplicasMissing",
        "BraidlogStreamsUnavailable", "BraidlogNoPrimary"}),
    "copies": (world(metadata=metadata(log("x", SHORT))),
        {"BraidlogReplicasMissing", "BraidlogCopyingLong"}),
    "damaged": (world(metadata=metadata(log("x", stream(damaged=(2,))))),
        {"BraidlogDamage"}),
    "scrub": (counted(scrub_damages=1), {"BraidlogScrubFoundDamage"}),
    "refused": (counted(connections_refused=9), {"BraidlogConnectionsRefused"}),
    "dropped": (counted(messages_dropped=9), {"BraidlogMessagesDropped"}),
    "stuck": (world(status=replace(WELL, waiting=WELL.waiting | {"appends": 4})),
        {"BraidlogAppendsStuck"}),
    "full": (near_full(segments=15), {"BraidlogLogNearlyFull"}),
    "lags": (lagging(20_000), {"BraidlogFollowerLags"}),
    "slow appends": (slow("append"), {"BraidlogAppendsSlow"}),
    "slow syncs": (slow("sync"), {"BraidlogSyncsSlow"}),
    "slow cuts": (slow("cut"), {"BraidlogCutsSlow"}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def disk() -> None:
    """Have room, whatever the machine of the tests has."""
    for seen, _ in CASES.values():
        for exported in seen.now.values():
            exported["braidlog_disk_free_bytes"] = 50.0
            exported["braidlog_disk_size_bytes"] = 100.0


def test_each_alert_fires_on_what_it_is_for() -> None:
    found = {case: fires(seen) for case, (seen, _) in CASES.items()}
    assert found == {case: wanted for case, (_, wanted) in CASES.items()}
    full = world()
    for exported in full.now.values():
        exported["braidlog_disk_free_bytes"] = 1.0
        exported["braidlog_disk_size_bytes"] = 100.0
    assert fires(full) == {"BraidlogDiskNearlyFull"}
    tried = set().union(*found.values()) | {"BraidlogDiskNearlyFull"}
    assert tried == RULES.keys()


def test_nothing_is_asked_for_that_no_node_exports() -> None:
    exported = {name.partition("{")[0] for name in leader(copying={3: 7})}
    for expression in EXPRESSIONS:
        assert names(expression) <= exported, expression
        assert names(expression), expression


def test_every_panel_shows_something() -> None:
    seen = World(
        {"a": leader(copying={3: 7})},
        {"a": leader(latencies=dict.fromkeys(KINDS, Histogram()))},
    )
    for panel in PANELS:
        for target in panel["targets"]:
            expression = target["expr"].replace("$job", "braidlog")
            assert evaluate(expression, seen), expression


def test_every_alert_is_explained() -> None:
    rows = re.findall(r"^\| `(Braidlog\w+)` \|", OPERATING.read_text(), re.M)
    assert rows == list(RULES)
    for rule in GROUP["rules"]:
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert set(rule["annotations"]) == {"summary", "description"}
