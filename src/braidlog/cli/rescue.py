"""``braidlog rescue``: which nodes go on when the metadata repository is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import click

from braidlog.cli import failures
from braidlog.cli.commands import LocalCommand, command
from braidlog.cli.output import facts, message, rows
from braidlog.cli.session import Session
from braidlog.errors import CorruptionError, FormatError, LogError, NotFoundError
from braidlog.faultlog import (
    FILE_NAME,
    Decision,
    FaultLog,
    FaultRecord,
    Refuse,
    Unreadable,
    Verdict,
    Wait,
    decide,
    read_ring,
    scan,
    write_locked,
)

__all__ = ["rescue"]


@dataclass(frozen=True, slots=True)
class _Found:
    """What one directory has."""

    path: Path
    record: FaultRecord | None
    problem: str = ""
    notes: tuple[str, ...] = ()


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


@command(kind=LocalCommand)
@click.argument(
    "directories",
    nargs=-1,
    metavar="[DIR]...",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
)
@click.option(
    "--streams",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='JSON: the replicas of each stream, such as {"1": [1, 2]}.',
)
@click.option("--write", is_flag=True, help="Write the new epoch to the valid nodes.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def rescue(
    context: click.Context,
    *,
    directories: tuple[Path, ...],
    streams: Path | None,
    write: bool,
    yes: bool,
) -> None:
    """Decide from fault logs which nodes go on.

    For the day on which the metadata repository is lost for good. Takes the data
    directories of all nodes that can be had, or copies of them [default: --data]. Only
    looks, unless --write is given; all nodes have to be stopped. Ends with code 8 if
    other nodes have to be there first, with 9 if no choice is safe.
    """
    session: Session = context.obj
    directories = directories or (session.data,)
    replicas = _replicas(streams) if streams else {}
    with ExitStack() as locks:
        if write:
            for directory in directories:
                locks.enter_context(write_locked(directory))
        found = [_look(directory) for directory in directories]
        verdict = _verdict(found, replicas)
        if not session.as_json:
            _show(session, found, verdict, checked=bool(streams))
        written = isinstance(verdict, Decision) and write
        if isinstance(verdict, Decision) and write:
            _write(session, found, verdict, yes=yes)
    if session.as_json:
        facts(session, _summary(found, verdict, written))
    elif isinstance(verdict, Decision) and not write:
        message("hint: with all nodes stopped, --write makes it so")
    codes = {Wait: failures.WAIT, Refuse: failures.REFUSED}
    context.exit(codes.get(type(verdict), 0))


def _look(directory: Path) -> _Found:
    try:
        ring = scan(read_ring(directory), path=str(directory / FILE_NAME))
    except (CorruptionError, FormatError, NotFoundError) as error:
        return _Found(directory, None, error.message)
    if ring.newest is None:
        return _Found(directory, None, "its fault log is empty", ring.notes)
    return _Found(directory, ring.newest, notes=ring.notes)


def _verdict(found: Sequence[_Found], streams: Mapping[int, list[int]]) -> Verdict:
    present: dict[int, FaultRecord | Unreadable] = {}
    places: dict[int, Path] = {}
    for item in found:
        if item.record is None:
            continue
        node = item.record.node
        if node in places:
            why = f"node {node} is there twice: {places[node]} and {item.path}"
            return Refuse(None, (node,), (why,))
        places[node], present[node] = item.path, item.record
    return decide(present, streams)


def _replicas(path: Path) -> dict[int, list[int]]:
    try:
        value = json.loads(path.read_bytes())
        streams = {int(stream): list(nodes) for stream, nodes in value.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise _bad_streams(path) from error
    nodes = [node for replicas in streams.values() for node in replicas]
    if not all(type(node) is int for node in nodes):
        raise _bad_streams(path)
    return streams


def _bad_streams(path: Path) -> failures.Problem:
    return failures.Problem(
        f"{path} does not map streams to nodes",
        'it has to look like {"1": [1, 2], "2": [2, 3]}',
        failures.USAGE,
    )


def _show(
    session: Session, found: Sequence[_Found], verdict: Verdict, *, checked: bool
) -> None:
    rows(session, _rows(found, verdict), empty="no node was named")
    for item in found:
        for note in (*item.notes, *([item.problem] if item.problem else [])):
            message(f"note: {item.path}: {note}")
    if authority := verdict.authority:
        epoch, sequence = authority.number
        message(
            f"node {authority.node} of {authority.cluster!r} has the newest record:"
            f" epoch {epoch}, sequence {sequence}"
        )
    match verdict:
        case Decision(valid=valid, configuration=new):
            message(f"decided: {_names(valid)} go on, in epoch {new.epoch}")
            if not checked:
                message("note: streams were not checked; --streams names them")
        case Wait(missing=missing):
            who = f" for {_names(missing)}" if missing else ""
            message(f"wait{who}: {'; '.join(verdict.why)}")
        case Refuse():
            message(f"refused: {'; '.join(verdict.why)}")


def _rows(found: Sequence[_Found], verdict: Verdict) -> Iterator[_Row]:
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
    if isinstance(verdict, Wait):
        for node in verdict.missing:
            yield _Row(node, None, None, None, None, None, "missing")


def _by_node(item: _Found) -> tuple[bool, int]:
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


def _write(
    session: Session, found: Sequence[_Found], decision: Decision, *, yes: bool
) -> None:
    new = decision.configuration
    session.confirm(f"write epoch {new.epoch} to {_names(decision.valid)}", yes=yes)
    done: list[int] = []
    try:
        for item in found:
            record = item.record
            if record is None or record.node not in decision.valid:
                continue
            with FaultLog.open(
                item.path, record.cluster, record.node, create=False
            ) as log:
                log.record(new, viable=True)
            done.append(record.node)
    except LogError as error:
        # Whoever has the record already is needed by the next decision, which is then
        # the same one.
        error.add_note(f"written to {_names(done)}; run the same command again")
        raise
    if not session.as_json:
        message(f"epoch {new.epoch} is written to {_names(done)}")


def _summary(
    found: Sequence[_Found], verdict: Verdict, written: bool
) -> dict[str, Any]:
    kind: Literal["decided", "wait", "refused"] = "decided"
    summary: dict[str, Any] = {"valid": [], "configuration": None, "why": []}
    match verdict:
        case Decision(valid=valid, configuration=configuration):
            summary |= {"valid": valid, "configuration": configuration}
        case Wait(missing=missing, why=why):
            kind, summary = "wait", summary | {"missing": missing, "why": why}
        case Refuse(nodes=nodes, why=why):
            kind, summary = "refused", summary | {"named": nodes, "why": why}
    return {
        "verdict": kind,
        "authority": verdict.authority.node if verdict.authority else None,
        **summary,
        "written": written,
        "nodes": list(_rows(found, verdict)),
        "notes": [
            {"directory": item.path, "problem": problem}
            for item in found
            for problem in (*item.notes, item.problem)
            if problem
        ],
    }


def _names(nodes: Sequence[int]) -> str:
    listed = ", ".join(map(str, sorted(nodes))) or "none"
    return f"node {listed}" if len(nodes) == 1 else f"nodes {listed}"
