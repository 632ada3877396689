"""What `braidlog rescue` says: rows, messages, JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import message, rows
from braidlog.faultlog import (
    Decision,
    FaultRecord,
    Refuse,
    Verdict,
    Wait,
)

if TYPE_CHECKING:
    from braidlog.metarepo.succession import Copy, Recovered

STUCK: Final = (
    "pass an undamaged copy of the directory. If there is none, leave "
    "it out; --lost NODE shows what giving it up may lose"
)


@dataclass(frozen=True, slots=True)
class Found:
    """What one directory has."""

    path: Path
    record: FaultRecord | None
    notes: tuple[str, ...] = ()
    """What is wrong with it."""
    copy: Copy | None = None
    """Its copy of the metadata repository."""
    starts: bool = True
    """Whether a node can start in it, as far as that can be seen."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One node, or a directory of which the node is not known."""

    node: int | None
    directory: Path | None
    epoch: int | None
    sequence: int | None
    failed: tuple[int, ...] | None
    viable: bool | None
    state: str


def show(
    session: Session,
    found: Sequence[Found],
    verdict: Verdict,
    recovered: Recovered | None,
    *,
    checked: bool,
    write: bool = False,
) -> None:
    """Tell a person what there is, and what comes of it."""
    enough = unneeded(found, verdict, recovered)
    rows(session, _rows(found, verdict), empty="no directory of a node was given")
    for item in found:
        for note in item.notes:
            message(f"note: {item.path}: {note}")
    if authority := verdict.authority:
        epoch, sequence = authority.number
        message(
            f"node {authority.node} of {authority.cluster!r} has the newest record:"
            f" epoch {epoch}, sequence {sequence}"
        )
    for text in _carried(recovered, checked=checked):
        message(text)
    match verdict:
        case Decision(valid=valid, configuration=new):
            for text in _losses(verdict, recovered):
                message(f"loss: {text}")
            go = "goes" if len(valid) == 1 else "go"
            message(f"decided: {names(valid)} {go} on, in epoch {new.epoch}")
        case Wait(missing=missing):
            who = f" for {names(missing)}" if missing else ""
            message(f"wait{who}: {'; '.join(verdict.why)}")
            if missing and verdict.authority and not enough:
                message(
                    "hint: pass the directories of all of them. If a disk is "
                    "destroyed, --lost NODE shows what giving it up may lose"
                )
        case Refuse():
            message(f"refused: {'; '.join(verdict.why)}")
    if enough:
        message(f"{'note' if write else 'hint'}: {enough}")


def stuck_nodes(found: Sequence[Found], verdict: Verdict) -> tuple[int, ...]:
    """Return the nodes that would have to go on and cannot start.

    The others would wait for what they hold, for ever.
    """
    if not isinstance(verdict, Decision):
        return ()
    return tuple(
        item.record.node
        for item in found
        if item.record and item.record.node in verdict.valid and not item.starts
    )


_START: Final = (
    "start the nodes as usual (`braidlog serve --config FILE` each, or `braidlog up`)"
)


def unneeded(
    found: Sequence[Found], verdict: Verdict, recovered: Recovered | None
) -> str:
    """Say why nothing has to be rescued, and what to do instead; empty if it has to.

    Nodes that can elect a leader of the repository need nobody to decide for them.
    """
    authority = verdict.authority
    if isinstance(verdict, Refuse) or authority is None or recovered is None:
        return ""
    if isinstance(verdict, Decision) and verdict.lost:
        return ""
    epoch = authority.configuration.epoch
    if recovered.group < epoch:
        # A rescue has written this epoch, and no node has begun it.
        here = {
            item.record.node
            for item in found
            if item.record is not None and item.record.number == authority.number
        }
        live = set(authority.configuration.live)
        rest = f"epoch {epoch} is written to all nodes that go on: {_START}"
        return rest if live <= here else ""
    if not recovered.complete:
        return ""
    return (
        f"no rescue is needed: {len(recovered.heard)} of the "
        f"{len(recovered.voters)} voters of the metadata repository are "
        f"here with their logs, a majority: {_START}"
    )


def _carried(recovered: Recovered | None, *, checked: bool) -> Iterator[str]:
    if recovered is None:
        yield (
            "note: no copy of the metadata repository was found: cursors, "
            "retention settings and producers are not carried over"
        )
        if not checked:
            yield "note: streams were not checked; --streams names them"
        return
    counts = ", ".join(
        f"{count} {what.removesuffix('s') if count == 1 else what}"
        for what, count in _counts(recovered).items()
        if count
    )
    yield f"metadata repository, as node {recovered.node} has it: {counts or 'empty'}"
    if not recovered.complete:
        yield f"note: {_incomplete(recovered)}"
    if recovered.unproven:
        yield f"note: {_unproven(recovered)}"


def _counts(recovered: Recovered) -> dict[str, int]:
    state = recovered.state
    return {
        "logs": len(state.logs),
        "streams": len(state.streams),
        "cursors": sum(len(log.cursors) for log in state.logs.values()),
    }


def _incomplete(recovered: Recovered) -> str:
    return (
        f"{len(recovered.heard)} of the {len(recovered.voters)} nodes that vote in it"
        " are here, which is no majority: changes of logs, cursors and options that"
        " were made last may be missing"
    )


def _unproven(recovered: Recovered) -> str:
    listed = ", ".join(f"{n} {name}" for name, n in recovered.unproven.items())
    return (
        f"entries {recovered.proven + 1} to {recovered.index} are kept, though it is"
        f" not known whether they were committed: {listed}"
    )


def _losses(decision: Decision, recovered: Recovered | None) -> Iterator[str]:
    if not decision.lost:
        return
    epoch, sequence = decision.authority.number
    before = decision.authority.lost
    if before:
        yield f"the rescue before, of epoch {epoch}, gave up {names(before)}"
    if new := tuple(node for node in decision.lost if node not in before):
        yield (
            f"{names(new)} may have gone on alone after epoch {epoch}, sequence"
            f" {sequence}: what was acknowledged then is lost"
        )
    state = recovered.state if recovered else None
    for number in decision.lost_streams:
        stream = state.streams.get(number) if state else None
        if stream is None or state is None:
            yield f"stream {number} has no valid replica"
        else:
            name = state.logs[stream.log].name
            yield (
                f"stream {number} of {name!r} was on"
                f" {names(stream.replicas)} alone: its {stream.committed - 1} records"
                " are lost, but for older copies elsewhere"
            )


def _rows(found: Sequence[Found], verdict: Verdict) -> Iterator[_Row]:
    for item in sorted(found, key=_by_node):
        if item.record is None:
            yield _Row(None, item.path, None, None, None, None, "unreadable")
        else:
            record, said = item.record, item.record.configuration
            yield _Row(
                record.node,
                item.path,
                said.epoch,
                said.sequence,
                said.failed,
                record.viable,
                _state(record, verdict),
            )
    match verdict:
        case Wait(missing=missing):
            yield from (_absent(node, "missing") for node in missing)
        case Decision(lost=lost):
            here = {item.record.node for item in found if item.record is not None}
            yield from (_absent(node, "lost") for node in lost if node not in here)


def _absent(node: int, state: str) -> _Row:
    return _Row(node, None, None, None, None, None, state)


def _by_node(item: Found) -> tuple[bool, int]:
    return (item.record is None, item.record.node if item.record else 0)


def _state(record: FaultRecord, verdict: Verdict) -> str:
    if verdict.authority is None:
        return "unclear"
    last = verdict.authority.configuration
    if record.node in last.failed:
        return "listed as failed"
    if record.node not in last.members:
        return "no member"
    if not record.viable:
        return "not viable"
    return "valid" if isinstance(verdict, Decision) else "unclear"


def summary(
    found: Sequence[Found],
    verdict: Verdict,
    recovered: Recovered | None,
    *,
    written: bool,
) -> dict[str, Any]:
    """Return everything that `show` tells, for programs."""
    kind: Literal["decided", "wait", "refused"] = "decided"
    said: dict[str, Any] = {"valid": [], "configuration": None, "why": []}
    match verdict:
        case Decision(valid=valid, configuration=configuration):
            said |= {
                "valid": valid,
                "configuration": configuration,
                "lost": verdict.lost,
                "lost_streams": verdict.lost_streams,
                "losses": list(_losses(verdict, recovered)),
            }
        case Wait(missing=missing, why=why):
            kind, said = "wait", said | {"missing": missing, "why": why}
        case Refuse(nodes=nodes, why=why):
            kind, said = "refused", said | {"named": nodes, "why": why}
    return {
        "verdict": kind,
        "authority": verdict.authority.node if verdict.authority else None,
        **said,
        "needed": not unneeded(found, verdict, recovered),
        "repository": _repository(recovered) if recovered else None,
        "written": written,
        "nodes": list(_rows(found, verdict)),
        "notes": [
            {"directory": item.path, "problem": problem}
            for item in found
            for problem in item.notes
        ],
    }


def _repository(recovered: Recovered) -> dict[str, Any]:
    return {
        "node": recovered.node,
        "index": recovered.index,
        "proven": recovered.proven,
        "unproven": recovered.unproven,
        "voters": recovered.voters,
        "heard": recovered.heard,
        "complete": recovered.complete,
        **_counts(recovered),
    }


def names(nodes: Sequence[int]) -> str:
    """Return the nodes as a person calls them."""
    listed = ", ".join(map(str, sorted(nodes))) or "none"
    return f"node {listed}" if len(nodes) == 1 else f"nodes {listed}"
