"""Which nodes may go on when the metadata repository is lost for good.

Theory of operation (Skeen 1985, last process to fail). A record with the greatest
(epoch, sequence) says the last thing in which anybody present acted. Its whole failed
set is authoritative: who is listed there missed something, who is not has everything
acknowledged up to then. A member that is not listed and is absent may hold a greater
record, so it is waited for. What older records accuse each other of is history, and
neither clocks nor the length of a log say who was there last.

Who knows that a disk is destroyed may give a member up. It counts as listed then, and
what was acknowledged without the valid nodes is lost: a person says so, no rule does.

Invariants, as long as nobody is given up:
    - Every valid node was in the last configuration in which anything was
      acknowledged, so it has everything that was.
    - Whoever is asked, with whatever nodes present: there is one decision or none.
    - With all members present and nothing forked there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from braidlog.errors import InvalidArgumentError
from braidlog.faultlog.configuration import Configuration
from braidlog.faultlog.record import FaultRecord

__all__ = ["Decision", "Refuse", "Unreadable", "Verdict", "Wait", "decide"]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A node that is there and whose newest record is not known: as good as absent."""

    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """These nodes go on, in this configuration."""

    authority: FaultRecord
    valid: tuple[int, ...]
    configuration: Configuration
    """To be durable on all valid nodes before any takes a write. Who is listed in it
    comes back as any node that failed."""
    lost: tuple[int, ...] = ()
    """Members that were given up: what they acknowledged alone is lost."""
    lost_streams: tuple[int, ...] = ()
    """Streams of which no valid node had a replica in the newest epoch."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Members that may know more have to be there first."""

    authority: FaultRecord | None
    missing: tuple[int, ...]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """No choice is safe; a person has to look."""

    authority: FaultRecord | None
    nodes: tuple[int, ...]
    """Nodes that contradict each other, or could help."""
    why: tuple[str, ...]


Verdict: TypeAlias = Decision | Wait | Refuse


def decide(
    present: Mapping[int, FaultRecord | Unreadable],
    streams: Mapping[int, Collection[int]] | None = None,
    lost: Collection[int] = (),
) -> Verdict:
    """Return what the newest records of the nodes that are present allow.

    `streams` has the replicas of each stream in the newest epoch that is known of it;
    each stream needs a valid one. The other nodes hold what is older. Members that are
    `lost` for good are not waited for.

    Raises:
        InvalidArgumentError: A record is not of the node it is given for; a lost node
            can be read, or is no member.
    """
    records = {n: r for n, r in present.items() if isinstance(r, FaultRecord)}
    for node, record in records.items():
        if record.node != node:
            raise InvalidArgumentError(f"node {node} has a record of {record.node}")
    if not records:
        return _nothing_to_go_by(present)
    authority = max(records.values(), key=lambda record: (record.number, -record.node))
    if contradiction := _contradiction(authority, records):
        return contradiction
    _require_lost(authority, records, lost)
    absent = tuple(n for n in authority.configuration.live if n not in records)
    missing = tuple(node for node in absent if node not in lost)
    if missing:
        return Wait(authority, missing, _why_missing(authority, missing, present))
    live = tuple(n for n in authority.configuration.live if n in records)
    valid = tuple(node for node in live if records[node].viable)
    if not valid:
        why = "every node with a viable log is listed as failed"
        return Refuse(authority, live, (why,))
    uncovered = _uncovered(valid, streams or {})
    if any(not set(replicas) & set(absent) for replicas in uncovered.values()):
        helpers = sorted({node for replicas in uncovered.values() for node in replicas})
        why_not = tuple(
            f"stream {stream} has no valid replica; its last replicas are "
            f"{_names(replicas)}"
            for stream, replicas in sorted(uncovered.items())
        )
        return Refuse(authority, tuple(helpers), why_not)
    new = _next(authority, valid)
    # A rescue that stopped half-way has given them up already.
    given_up = {*absent, *authority.lost} & set(new.failed)
    return Decision(
        authority, valid, new, tuple(sorted(given_up)), tuple(sorted(uncovered))
    )


def _require_lost(
    authority: FaultRecord, records: Collection[int], lost: Collection[int]
) -> None:
    if here := sorted(set(lost) & set(records)):
        msg = f"node {_names(here)} was named as lost, but its directory can be read"
        raise InvalidArgumentError(msg)
    if strange := sorted(set(lost) - set(authority.configuration.members)):
        raise InvalidArgumentError(
            f"node {_names(strange)} is not a member of the cluster "
            f"{authority.cluster!r}"
        )


def _nothing_to_go_by(present: Mapping[int, FaultRecord | Unreadable]) -> Wait:
    why = [
        f"node {node}: {item.why}"
        for node, item in sorted(present.items())
        if isinstance(item, Unreadable)
    ]
    return Wait(
        None, tuple(sorted(present)), (*why, "none of the fault logs can be read")
    )


def _contradiction(
    authority: FaultRecord, records: Mapping[int, FaultRecord]
) -> Refuse | None:
    """Find two sides that decided without each other, or two clusters."""
    foreign = sorted(n for n, r in records.items() if r.cluster != authority.cluster)
    if foreign:
        names = sorted({record.cluster for record in records.values()})
        why = (
            f"the directories belong to several clusters: {', '.join(map(repr, names))}"
        )
        return Refuse(authority, tuple(sorted(records)), (why,))
    against = sorted(
        node
        for node, record in records.items()
        if record.configuration.contradicts(authority.configuration)
    )
    if not against:
        return None
    nodes = (authority.node, *against)
    lists = "; ".join(
        f"node {node} lists {_names(records[node].configuration.failed)} as failed"
        f" of {_names(records[node].configuration.members)}"
        for node in nodes
    )
    epoch, sequence = authority.number
    why = f"two configurations of epoch {epoch}, sequence {sequence}: {lists}"
    return Refuse(authority, nodes, (why,))


def _why_missing(
    authority: FaultRecord,
    missing: tuple[int, ...],
    present: Mapping[int, FaultRecord | Unreadable],
) -> tuple[str, ...]:
    why = []
    for node in missing:
        item = present.get(node)
        state = f"unreadable: {item.why}" if isinstance(item, Unreadable) else "absent"
        why.append(
            f"node {node} is {state}, and node {authority.node} does not list "
            "it as failed: it may have gone on alone with newer records"
        )
    return tuple(why)


def _uncovered(
    valid: Collection[int], streams: Mapping[int, Collection[int]]
) -> dict[int, Collection[int]]:
    return {s: r for s, r in streams.items() if not set(r) & set(valid)}


def _next(authority: FaultRecord, valid: tuple[int, ...]) -> Configuration:
    """Return the first configuration of the next epoch.

    The epoch is what makes it greater than anything that an absent node may have
    recorded since: a number that went on would meet that node's own.
    """
    members = authority.configuration.members
    return Configuration(
        epoch=authority.configuration.epoch + 1,
        sequence=0,
        members=members,
        failed=tuple(node for node in members if node not in valid),
    )


def _names(nodes: Collection[int]) -> str:
    return ", ".join(map(str, sorted(nodes))) or "none"
