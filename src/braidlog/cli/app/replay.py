"""``braidlog app replay`` and ``braidlog app verify``: states made again from logs."""

from __future__ import annotations

import contextlib
import itertools
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from braidlog.cli.app.applications import load
from braidlog.cli.command import parameters
from braidlog.cli.command.commands import EitherCommand, command
from braidlog.cli.command.failures import (
    CORRUPTION,
    NOT_FOUND,
    OUT_OF_RANGE,
    USAGE,
    WAIT,
    Problem,
)
from braidlog.cli.command.options import (
    environment_option,
    from_zero_option,
    outcomes_option,
    raw_option,
    snapshots_option,
)
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import facts, line, message, plain
from braidlog.cli.terminal.progress import meter
from braidlog.errors import (
    AlreadyExistsError,
    CorruptionError,
    NotFoundError,
    NotReadyError,
    TrimmedError,
)

if TYPE_CHECKING:
    from braidlog.app import Application
    from braidlog.app.replay.audit import Audit, Seen
    from braidlog.app.replay.run import Replay, Replayed, ReplayProgress
    from braidlog.app.replay.snapshot_source import SnapshotStarts
    from braidlog.sources.dead import Cut, DeadSource, Lacks
    from braidlog.sources.source import LogSource


def _partitions(_: click.Context, __: click.Parameter, text: str | None) -> Any:
    """Return the numbers of ``0-3,7``."""
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        span = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        if span is None:
            raise click.BadParameter(
                f"{text!r} is not a list of partitions; example: 0-3,7"
            )
        found.update(range(int(span[1]), int(span[2] or span[1]) + 1))
    return frozenset(found)


@command("replay", kind=EitherCommand)
@click.argument("program", metavar="MODULE:NAME")
@click.argument("state", type=parameters.DIRECTORY)
@click.option("--log", "log", metavar="LOG", help="With --cluster or --raw: the log.")
@raw_option
@click.option(
    "--cut",
    type=click.Choice(["strict", "any-copy"]),
    default="strict",
    show_default=True,
    help=("With --raw, where no directory has a record: stop, or continue after it."),
)
@click.option("--until", type=parameters.POSITION, help="Last position to execute.")
@click.option(
    "--as-of",
    type=parameters.timestamp,
    metavar="TIME",
    help="Execute everything before the first record after TIME.",
)
@snapshots_option
@from_zero_option
@click.option(
    "--partitions",
    callback=_partitions,
    metavar="LIST",
    help="Replay only these partitions, such as 0-3,7.",
)
@click.option(
    "--across",
    type=click.Choice(["include", "refuse"]),
    default="include",
    show_default=True,
    help="What to do if commands also touch other partitions.",
)
@click.option(
    "--resize",
    type=parameters.Whole(1),
    metavar="NUMBER",
    help="Spread the result over this many partitions, by the row keys.",
)
@outcomes_option
@environment_option
@click.option(
    "--verify",
    "verified",
    is_flag=True,
    help=("Compare with each snapshot passed, and with the state of the host."),
)
def replay_(
    session: Session,
    /,
    program: str,
    state: Path,
    *,
    log: str | None,
    raw: tuple[Path, ...],
    cut: Cut,
    until: int | None,
    as_of: int | None,
    snapshots: Path | None,
    from_zero: bool,
    verified: bool,
    **options: Any,
) -> None:
    """Compute the state of an application from its log, into STATE.

    The log is in the application's directory (--data), in a cluster, or in the
    directories of a dead cluster (--raw). If interrupted, run the same command again;
    it resumes.
    """
    from braidlog.app.replay.audit import replay_and_compare
    from braidlog.app.replay.run import Moment

    if until is not None and as_of is not None:
        raise click.UsageError("--until and --as-of cannot be combined")
    application = load(program)
    end = until if as_of is None else Moment(as_of)
    source = _input(session, log) if not raw else _raw(raw, log, cut)
    starts = _starts(session, application, snapshots)
    with _refusals(), source as opened, _shown("replaying") as progress:
        here = session.cluster is None and not raw
        done, audits = replay_and_compare(
            application,
            opened,
            state,
            _looks(session, application, starts, here=here) if verified else (),
            cut=cut,
            until=end,
            starts=None if from_zero else starts,
            progress=progress,
            **options,
        )
    _tell(session, done, getattr(opened, "found", None))
    if verified:
        _tell_verified(session, audits)
    if done.differences:
        raise Problem(
            f"{len(done.differences)} outcomes differ from the log, the first at"
            f" {done.differences[0].position}",
            "find what the procedure takes from outside the log",
            CORRUPTION,
        )


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Say what to do in terms of a replay."""
    try:
        yield
    except TrimmedError as error:
        hint = (
            "pass snapshots of a host with --snapshots; the replay begins with "
            "the newest one before --until or --as-of"
        )
        raise Problem(error.message, hint, OUT_OF_RANGE) from None
    except AlreadyExistsError as error:
        hint = "name a directory that does not exist yet, or is empty"
        raise Problem(error.message, hint) from None
    except NotReadyError as error:
        hint = (
            "pass the directories of all nodes; `braidlog rescue` says which "
            "of them count"
        )
        raise Problem(error.message, hint, WAIT) from None


def _looks(
    session: Session, application: Application, starts: SnapshotStarts, *, here: bool
) -> list[list[Seen]]:
    """Look at the snapshots of a host, and at its state if it is beside the log."""
    from braidlog.app.replay.audit import look_at

    looks = starts.seen()
    live = session.data / "state"
    if here and live.exists():
        looks.append(look_at(live))
    return looks


def _tell_verified(session: Session, audits: list[Audit]) -> None:
    if not any(audit.compared for audit in audits):
        raise Problem(
            "there was nothing to compare with",
            "name snapshots that lie between start and end with --snapshots",
        )
    for audit in audits:
        if not session.as_json:  # The result is one object.
            _tell_audit(session, audit)
        if audit.findings:
            raise _differs(audit)


def _starts(
    session: Session, application: Application, path: Path | None
) -> SnapshotStarts:
    from braidlog.app.replay.snapshot_source import SnapshotStarts

    where = session.data / "snapshots" if path is None else path
    return SnapshotStarts(where)


@contextlib.contextmanager
def _input(session: Session, log: str | None) -> Iterator[LogSource]:
    from braidlog.app.replay.inputs import commands_of

    if session.cluster is not None:
        if log is None:
            raise Problem("no log of the cluster was given", "pass --log NAME", USAGE)
        with session.source(log) as source:
            yield source
        return
    with commands_of(session.data) as source:
        yield source


@contextlib.contextmanager
def _raw(directories: Sequence[Path], log: str | None, cut: Cut) -> Iterator[LogSource]:
    from braidlog.app.log.source import LOG_NAME
    from braidlog.sources.dead import DeadSource

    name = LOG_NAME if log is None else log
    with contextlib.closing(DeadSource(directories, name, cut=cut)) as source:
        try:
            yield source
        except CorruptionError as error:
            raise Problem(error.message, _damage_hint(source), CORRUPTION) from None
        except NotFoundError as error:
            hint = (
                "--raw takes the data directories of nodes, of an application the one"
                " named log in its directory; --log names a log in them"
            )
            raise Problem(error.message, hint, NOT_FOUND) from None
        finally:
            _tell_lacks(source.found)


def _damage_hint(source: DeadSource) -> str:
    if source.cut == "any-copy" or not source.found.damages:
        return "`braidlog verify --data DIR` shows the damage of one directory"
    return (
        "pass undamaged copies of these files, or replay the rest with "
        "--cut any-copy; --until ends before what is missing"
    )


def _tell_lacks(lacks: Lacks) -> None:
    for damage in lacks.damages:
        message(f"left out: {damage}")
    for begin, end in lacks.holes:
        message(f"no directory has the positions {begin} to {end - 1}")
    for note in lacks.notes:
        message(f"note: {note}")


@contextlib.contextmanager
def _shown(label: str) -> Iterator[Any]:
    with meter(label, None, unit="positions") as bar:

        def show(outlook: ReplayProgress) -> None:
            bar.at(outlook.position, outlook.end)

        yield show


def _tell(session: Session, done: Replayed, lacks: Lacks | None) -> None:
    def shown(named: dict[str, Any]) -> dict[str, Any]:
        named["differences"] = [str(each) for each in done.differences]
        named["seconds"] = round(done.seconds, 3)
        named["commands_per_second"] = round(done.commands_per_second)
        hashes = named.pop("hashes")
        if not done.total_hash:
            del named["total_hash"]
        return {**named, **{f"partition {n}": text for n, text in hashes.items()}}

    if lacks is not None and session.as_json:
        # Beside the figures, what they lack: people have read it in messages.
        facts(session, {**plain(done), "lacks": plain(lacks)})
        return
    facts(session, done, shown)


@command("verify", kind=EitherCommand)
@click.argument("program", metavar="MODULE:NAME")
@click.option("--log", "log", metavar="LOG", help="With --cluster: the log.")
@click.option(
    "--state",
    type=parameters.DIRECTORY,
    metavar="DIR",
    help="The databases of the host [default: state in the data directory].",
)
@click.option(
    "--work",
    type=parameters.DIRECTORY,
    metavar="DIR",
    help="Keep the replayed state here and resume from it next time.",
)
@snapshots_option
@from_zero_option
@click.option("--follow", is_flag=True, help="Repeat the comparison.")
@click.option(
    "--every",
    type=parameters.duration,
    default="60s",
    show_default=True,
    help="With --follow: time between two comparisons.",
)
@click.option("--rounds", type=parameters.Whole(1), hidden=True)
@environment_option
def verify(
    session: Session,
    program: str,
    *,
    log: str | None,
    state: Path | None,
    work: Path | None,
    snapshots: Path | None,
    from_zero: bool,
    follow: bool,
    every: int,
    rounds: int | None,
    environment: str,
) -> None:
    """Compare the state of a host with a replay of its log.

    The replay begins from the newest snapshot, and is also compared with later ones.
    The host can keep running; it does not wait.
    """
    application = load(program)
    live = session.data / "state" if state is None else state
    with contextlib.ExitStack() as stack:
        stack.enter_context(_refusals())
        source = stack.enter_context(_input(session, log))
        if work is None:
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="replay-"))
            work = Path(made) / "state"
        starts = _starts(session, application, snapshots)
        first = None if from_zero else starts
        going = stack.enter_context(
            _begin(application, source, work, environment, first)
        )
        told = going.position
        for number in itertools.count(1):
            for audit in _compare(application, going, live, starts, told):
                _tell_audit(session, audit)
                if audit.findings:
                    raise _differs(audit)
            told = going.position
            if not follow or number == rounds:
                return
            time.sleep(every / 1000)


@contextlib.contextmanager
def _begin(
    application: Application,
    source: LogSource,
    work: Path,
    environment: str,
    starts: SnapshotStarts | None,
) -> Iterator[Replay]:
    from braidlog.app.replay.run import Replay
    from braidlog.app.replay.target import Target

    check: Any = environment
    with (
        _shown("replaying") as progress,
        Replay(
            application,
            source,
            Target(work, application),
            environment=check,
            starts=starts,
            progress=progress,
        ) as going,
    ):
        yield going


def _compare(
    application: Application,
    going: Replay,
    live: Path,
    starts: SnapshotStarts,
    told: int,
) -> Iterator[Audit]:
    """Compare with the snapshots since ``told``, then with the live state."""
    from braidlog.app.replay.audit import compare, look_at

    snapshots = [seen for seen in starts.seen() if seen and seen[0].position > told]
    now = look_at(live)
    going.go_on()  # After the look: the log has what was seen.
    for seen in [*snapshots, now]:
        yield compare(going, seen)


def _tell_audit(session: Session, audit: Audit) -> None:
    if session.as_json:
        facts(session, audit)
        return
    for each in audit.findings:
        stopped = ", stopped since it diverged" if each.stopped else ""
        message(
            f"partition {each.partition} at {each.position}{stopped}: the state has"
            f" {each.hash.hex()}, replay gives {each.replayed.hex()}"
        )
    if not audit.findings:
        count = len(audit.compared)
        line(session, f"{count} partitions are what the log gives at {audit.position}")


def _differs(audit: Audit) -> Problem:
    numbers = ", ".join(str(each.partition) for each in audit.findings)
    return Problem(
        f"the state of partition {numbers} differs from what the log gives",
        "stop the host, move its state away and start it again: it builds "
        "the state anew",
        CORRUPTION,
    )
