"""``braidlog rescue``: which nodes go on when the metadata repository is lost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from braidlog.cli.command import failures, parameters
from braidlog.cli.command.commands import LocalCommand, command
from braidlog.cli.command.options import yes_option
from braidlog.cli.command.parameters import FILE, FOLDER
from braidlog.cli.command.session import Session
from braidlog.cli.damage.rescue_report import (
    STUCK,
    Found,
    names,
    show,
    stuck_nodes,
    summary,
    unneeded,
)
from braidlog.cli.terminal.output import facts, message
from braidlog.errors import (
    CorruptionError,
    FormatError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
)
from braidlog.faultlog import (
    NO_DIGEST,
    Decision,
    FaultRecord,
    Refuse,
    Unreadable,
    Verdict,
    Wait,
    decide,
    scan,
)
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.node.rescue.ring import FILE_NAME, read_ring, write_locked

if TYPE_CHECKING:
    from braidlog.metarepo.succession import Recovered


@command(kind=LocalCommand)
@click.argument(
    "directories",
    nargs=-1,
    metavar="[DIR]...",
    type=FOLDER,
)
@click.option(
    "--lost",
    multiple=True,
    type=parameters.Whole(1),
    metavar="NODE",
    help="Give this node up: its disk is destroyed. Can be repeated.",
)
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Write even though --lost may lose acknowledged records.",
)
@click.option(
    "--streams",
    type=FILE,
    help="JSON with the replicas of each stream, such as"
    ' {"1": [1, 2]}, instead of what the directories say.',
)
@click.option("--write", is_flag=True, help="Write the new epoch to the valid nodes.")
@yes_option
def rescue(
    session: Session,
    *,
    directories: tuple[Path, ...],
    lost: tuple[int, ...],
    accept_loss: bool,
    streams: Path | None,
    write: bool,
    yes: bool,
) -> None:
    """Decide from fault logs which nodes continue.

    For the case that the metadata repository is lost for good. DIRECTORIES are the data
    directories of all nodes that are left, or copies [default: --data]. All nodes must
    be stopped. Changes nothing without --write. Exits with 8 if other nodes must be
    present first, with 9 if no decision is safe.
    """
    directories = directories or (session.data,)
    override = _replicas(streams) if streams else None
    with ExitStack() as locks:
        if write:
            # Twice named is refused below; here it would lock itself out.
            for directory in {each.resolve(): each for each in directories}.values():
                locks.enter_context(write_locked(directory))
        found = [_look(directory, locked=write) for directory in directories]
        recovered = _recover(found)
        replicas = _streams(recovered) if override is None else override
        verdict = _verdict(found, replicas, lost)
        if not session.as_json:
            checked = override is not None
            show(session, found, verdict, recovered, checked=checked, write=write)
        stuck = stuck_nodes(found, verdict)
        written = isinstance(verdict, Decision) and write
        if isinstance(verdict, Decision) and write:
            if stuck:
                text = f"{names(stuck)} would have to continue, but cannot start"
                raise failures.Problem(text, STUCK, failures.CORRUPTION)
            if set(verdict.lost) & set(lost) and not accept_loss:
                raise _loss_not_accepted(verdict)
            _write(session, found, verdict, recovered, yes=yes)
    if session.as_json:
        facts(session, summary(found, verdict, recovered, written=written))
    elif (
        isinstance(verdict, Decision)
        and not write
        and not unneeded(found, verdict, recovered)
    ):
        stopped = "with all nodes stopped, --write makes it so"
        message(f"hint: {STUCK if stuck else stopped}")
    codes = {Wait: failures.WAIT, Refuse: failures.REFUSED}
    raise click.exceptions.Exit(codes.get(type(verdict), 0))


def _look(directory: Path, *, locked: bool) -> Found:
    # Late, here and below: everything else works without the extra that this needs.
    from braidlog.node.rescue.files import read_copy

    try:
        ring = scan(read_ring(directory), path=str(directory / FILE_NAME))
    except NotFoundError as error:
        return Found(directory, None, (error.message, *_meant(directory)))
    except (CorruptionError, FormatError) as error:
        return Found(directory, None, (error.message,))
    record = ring.newest
    if record is None:
        return Found(directory, None, (*ring.notes, "its fault log is empty"))
    try:
        copy = read_copy(directory, record.node, locked=locked)
    except NotFoundError:
        # A fault log alone says what it says.
        note = "it has only a fault log"
        return Found(directory, record, (*ring.notes, note))
    except LogError as error:
        note = f"its log cannot be read, and the node will not start: {error.message}"
        return Found(directory, record, (*ring.notes, note), starts=False)
    return Found(directory, record, ring.notes, copy)


def _meant(directory: Path) -> tuple[str, ...]:
    """Name the data directories below one that is none."""
    below = (f"*/{FILE_NAME}", f"*/*/{FILE_NAME}")
    found = sorted(str(file.parent) for each in below for file in directory.glob(each))
    return (f"data directories are in it: {', '.join(found)}",) if found else ()


def _recover(found: Sequence[Found]) -> Recovered | None:
    """Return what the copies of the metadata repository come to."""
    from braidlog.metarepo.succession import recover_members

    records = [item.record for item in found if item.record is not None]
    copies = [
        (item.record, item.copy)
        for item in found
        if item.record is not None and item.copy is not None
    ]
    return recover_members(records, copies)


def _streams(recovered: Recovered | None) -> dict[int, Sequence[int]]:
    """Return the replicas of each stream that has records."""
    if recovered is None:
        return {}
    return {
        number: stream.replicas
        for number, stream in recovered.state.streams.items()
        if stream.committed > 1
    }


def _verdict(
    found: Sequence[Found],
    streams: Mapping[int, Sequence[int]],
    lost: Sequence[int],
) -> Verdict:
    present: dict[int, FaultRecord | Unreadable] = {}
    places: dict[int, Path] = {}
    for item in found:
        if item.record is None:
            continue
        node = item.record.node
        if node in places:
            why = (
                f"two directories belong to node {node}: {places[node]} and {item.path}"
            )
            return Refuse(None, (node,), (why,))
        places[node], present[node] = item.path, item.record
    try:
        return decide(present, streams, lost)
    except InvalidArgumentError as error:
        hint = "--lost names members whose directories are gone for good"
        raise failures.Problem(error.message, hint, failures.USAGE) from error


def _loss_not_accepted(decision: Decision) -> failures.Problem:
    return failures.Problem(
        f"this gives up {names(decision.lost)} and loses the records that "
        "only they hold",
        "pass --accept-loss if no disk of theirs can be recovered",
        failures.USAGE,
    )


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
        f"{path} does not map streams to lists of nodes",
        'write it like {"1": [1, 2], "2": [2, 3]}',
        failures.USAGE,
    )


def _write(
    session: Session,
    found: Sequence[Found],
    decision: Decision,
    recovered: Recovered | None,
    *,
    yes: bool,
) -> None:
    new = decision.configuration
    what = f"write epoch {new.epoch} to {names(decision.valid)}"
    if decision.lost:
        lost = f"give up {names(decision.lost)} and everything that only they hold"
        what = f"{lost}, and {what}"
    session.confirm(what, yes=yes)
    from braidlog.metarepo.succession import seed_of
    from braidlog.node.rescue.files import digest_of, write_seed

    valid = [
        (item.path, item.record)
        for item in found
        if item.record is not None and item.record.node in decision.valid
    ]
    seed = seed_of(recovered, new) if recovered is not None else None
    done: list[int] = []
    try:
        # All have it before any says so: who reads a record finds what it names.
        for path, _ in valid:
            if seed is not None:
                write_seed(path, seed)
        state = digest_of(seed) if seed is not None else NO_DIGEST
        for path, record in valid:
            with FaultLog.open(path, record.cluster, record.node, create=False) as log:
                log.record(new, viable=True, lost=decision.lost, state=state)
            done.append(record.node)
    except LogError as error:
        # Whoever has the record already is needed by the next decision, which is then
        # the same one.
        what = f"written to {names(done)}" if done else "no record is written"
        error.add_note(f"{what}; run the same command again")
        raise
    if not session.as_json:
        message(f"epoch {new.epoch} is written to {names(done)}")
        every = "it" if len(done) == 1 else "all of them"
        message(
            f"hint: start {every}; other nodes come back with new ids and empty"
            " directories"
        )
