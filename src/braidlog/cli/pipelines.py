"""``braidlog pipeline``: what reads whole logs, here or in Spark."""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from braidlog.cli.app.applications import load
from braidlog.cli.command import parameters
from braidlog.cli.command.commands import EitherCommand, command
from braidlog.cli.command.failures import CORRUPTION, NOT_FOUND, USAGE, Problem
from braidlog.cli.command.late import LateGroup
from braidlog.cli.command.options import (
    archive_options,
    environment_option,
    outcomes_option,
    raw_option,
)
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import facts, message
from braidlog.cli.terminal.progress import meter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braidlog.pipelines import JobProgress, Report

_LONG: Final = ("files", "rows", "hashes", "states", "findings")
"""What a person finds in the manifest, and programs in the JSON."""


@click.group(cls=LateGroup, late={"archive": ("archives", "archive_")})
def pipeline() -> None:
    """Process whole logs, in local processes or in Spark.

    An interrupted command resumes when you run it again; a finished one changes
    nothing. report.json in its directory says what it read, wrote and proved.
    """


def running(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where tasks run."""
    for option in (
        click.option(
            "--conf",
            multiple=True,
            metavar="NAME=VALUE",
            help="Spark setting. Can be repeated.",
        ),
        click.option(
            "--master",
            metavar="URL",
            help=("Run in Spark with this master: local[*], spark://host:7077, yarn."),
        ),
        click.option("--spark", is_flag=True, help="Run in Spark, on this machine."),
        click.option(
            "--workers",
            type=parameters.Whole(1),
            help="Number of processes [default: one per core].",
        ),
    ):
        function = option(function)
    return function


@contextlib.contextmanager
def place(
    name: str, *, workers: int | None, spark: bool, master: str | None, conf: Any
) -> Iterator[dict[str, Any]]:
    """Start what tasks run in, show progress; give the arguments for a pipeline.

    Raises:
        Problem: the options do not fit together.
    """
    if (spark or master) and workers is not None:
        raise Problem(
            "--workers cannot be combined with Spark", "pass one of them", USAGE
        )
    if conf and not (spark or master):
        raise Problem("--conf needs Spark", "pass --spark or --master", USAGE)
    settings = {}
    for each in conf:
        key, equals, value = each.partition("=")
        if not equals:
            text = f"{each!r} is not a setting"
            raise Problem(
                text, "write NAME=VALUE, for example spark.executor.memory=4g", USAGE
            )
        settings[key] = value
    with contextlib.ExitStack() as stack:
        given: dict[str, Any] = {"workers": workers}
        if spark or master:
            chosen = master or "local[*]"
            given = {"spark": stack.enter_context(_spark(name, chosen, settings))}
        bar = stack.enter_context(meter(name, None, unit="tasks"))

        def show(outlook: JobProgress) -> None:
            bar.at(outlook.done, outlook.tasks)

        yield {**given, "progress": show}


@contextlib.contextmanager
def _spark(name: str, master: str, settings: dict[str, str]) -> Iterator[SparkSession]:
    from braidlog.spark import local_session

    scratch = Path(tempfile.mkdtemp(prefix="braidlog-spark-"))
    said = scratch / "spark.log"
    session = local_session(
        f"braidlog {name}",
        master=master,
        settings=settings,
        scratch=scratch,
        diagnostics=said,
    )
    try:
        yield session
    except BaseException as error:
        error.add_note(f"the messages of Spark are in {said}")
        raise
    finally:
        session.stop()
    shutil.rmtree(scratch, ignore_errors=True)


def tell(session: Session, report: Report) -> None:
    """Print a report."""

    def shown(named: dict[str, Any]) -> dict[str, Any]:
        published = named.pop("published")
        named.pop("parameters")
        proved = published.pop("proved", [])
        kept = {
            name: value
            for name, value in published.items()
            if name not in _LONG and name not in named and name != "parameters"
        }
        return {**named, **kept, "proved": proved}

    facts(session, report, shown)
    if report.unchanged:
        message("note: this job was already done; nothing was changed")


def subcommand(name: str) -> Callable[[Callable[..., None]], Any]:
    """Make a function a pipeline's command that gets session and runner options."""

    def decorate(function: Callable[..., None]) -> Any:
        @functools.wraps(function)
        def call(session: Session, /, **options: Any) -> None:
            where = {
                each: options.pop(each)
                for each in ("workers", "spark", "master", "conf")
            }
            function(session, lambda: place(name, **where), **options)

        made = command(name, kind=EitherCommand)(running(call))
        pipeline.add_command(made)
        return made

    return decorate


Place = Callable[[], contextlib.AbstractContextManager[dict[str, Any]]]


@subcommand("compact")
@click.argument("log")
@click.argument("output", type=parameters.DIRECTORY)
@raw_option
@archive_options
@click.option("--until", type=parameters.POSITION, help="Last position to include.")
@click.option(
    "--tombstone",
    default="null",
    show_default=True,
    metavar="KIND",
    help=(
        "Which records delete their key: null (values), or also empty (values), "
        "pattern=REGEX (in values) or header=NAME; none: none."
    ),
)
def compact_(
    session: Session,
    running_in: Place,
    *,
    log: str,
    output: Path,
    raw: tuple[Path, ...],
    archive: bool | str,
    until: int | None,
    tombstone: str,
) -> None:
    """Write the latest record of each key to OUTPUT, as Parquet."""
    from braidlog.pipelines.compact_job import Tombstones, compact

    kind, _, text = tombstone.partition("=")
    gone = Tombstones(kind, text)
    origin = session.origin(log, raw, archive=archive)
    with running_in() as arguments:
        done = compact(origin, output, until=until, tombstones=gone, **arguments)
    tell(session, done)


@subcommand("replay")
@click.argument("program", metavar="MODULE:NAME")
@click.argument("output", type=parameters.DIRECTORY)
@click.option("--log", "log", metavar="LOG", help="With --cluster or --raw: the log.")
@raw_option
@archive_options
@click.option("--until", type=parameters.POSITION, help="Last position to execute.")
@click.option(
    "--tasks",
    type=parameters.Whole(1),
    help=("Number of tasks that share the partitions [default: one per core]."),
)
@outcomes_option
@environment_option
def replay_(
    session: Session,
    running_in: Place,
    *,
    program: str,
    output: Path,
    log: str | None,
    raw: tuple[Path, ...],
    archive: bool | str,
    **options: Any,
) -> None:
    """Compute the state of an application into OUTPUT, partitions in parallel.

    The log is in the application's directory (--data), in a cluster, or in the
    directories of a dead cluster (--raw).
    """
    from braidlog.app.log.source import LOG_NAME
    from braidlog.pipelines.replay_job import replay

    load(program)
    local = session.cluster is None and not raw
    if not local and log is None:
        raise Problem("no log was given", "pass --log NAME", USAGE)
    where = replace(session, data=session.data / "log") if local else session
    origin = where.origin(log or LOG_NAME, raw, archive=archive)
    with running_in() as arguments:
        done = replay(program, origin, output, **options, **arguments)
    tell(session, done)
    if done.published["differences"]:
        raise Problem(
            f"{len(done.published['differences'])} outcomes differ from the log",
            "the report names them; find what the procedure takes from outside the log",
            CORRUPTION,
        )


@subcommand("repartition")
@click.argument("log")
@click.argument("output", type=parameters.DIRECTORY)
@raw_option
@archive_options
@click.option("--into", metavar="LOG", required=True, help="The log to append to.")
@click.option(
    "--streams",
    type=parameters.STREAMS,
    default=1,
    show_default=True,
    help="Number of streams of the target log, if it must be created.",
)
@click.option(
    "--into-data",
    type=parameters.DIRECTORY,
    metavar="DIR",
    help="Data directory of the target log.",
)
@click.option(
    "--into-cluster",
    metavar="HOST:PORT,...",
    help="Cluster of the target log [default: where LOG is].",
)
@click.option("--until", type=parameters.POSITION, help="Last position to copy.")
def repartition_(
    session: Session,
    running_in: Place,
    *,
    log: str,
    output: Path,
    raw: tuple[Path, ...],
    archive: bool | str,
    into: str,
    streams: int,
    into_data: Path | None,
    into_cluster: str | None,
    until: int | None,
) -> None:
    """Append the records of LOG to another log with more or fewer streams.

    Each record is stored once, and records with the same key keep their order. OUTPUT
    holds intermediate files and the report. Token and certificates apply to both logs.
    """
    from braidlog.pipelines.repartition_job import Destination, repartition

    origin = session.origin(log, raw, archive=archive)
    if into_data and into_cluster:
        raise Problem("--into-data and --into-cluster cannot be combined", "", USAGE)
    seeds = "" if into_data else into_cluster or origin.cluster
    if not seeds and not into_data:
        text = "no target log was given"
        raise Problem(text, "pass --into-data or --into-cluster", USAGE)
    destination = Destination(
        into,
        streams,
        path=str(into_data or ""),
        cluster=seeds,
        ca=origin.ca,
        token=origin.token,
    )
    with running_in() as arguments:
        done = repartition(origin, destination, output, until=until, **arguments)
    tell(session, done)


@subcommand("reindex")
@click.argument("output", type=parameters.DIRECTORY)
@click.option(
    "--directory",
    "directories",
    multiple=True,
    required=True,
    type=parameters.FOLDER,
    metavar="DIR",
    help="Data directory of a log or a node. Can be repeated.",
)
def reindex_(
    session: Session,
    running_in: Place,
    *,
    output: Path,
    directories: tuple[Path, ...],
) -> None:
    """Rebuild missing or damaged side files.

    Side files let readers find positions and times without reading segments. OUTPUT
    gets the report. Nodes can keep running.
    """
    from braidlog.pipelines.reindex_job import reindex

    for directory in directories:
        if not replace(session, data=directory).has_data():
            hint = "--directory must be the data directory of a log or of a node"
            raise Problem(f"no Braidlog data in {directory}", hint, NOT_FOUND)
    with running_in() as arguments:
        done = reindex([str(path) for path in directories], output, **arguments)
    tell(session, done)


@subcommand("audit")
@click.argument("log")
@click.argument("output", type=parameters.DIRECTORY)
@raw_option
@click.option(
    "--archive",
    "archives",
    multiple=True,
    metavar="LOCATION",
    help="Also compare with this archive. Can be repeated.",
)
@click.option(
    "--include-archive", is_flag=True, help="Also compare with the archive of the log."
)
def audit_(
    session: Session,
    running_in: Place,
    *,
    log: str,
    output: Path,
    raw: tuple[Path, ...],
    include_archive: bool,
    archives: tuple[str, ...],
) -> None:
    """Compare all copies of LOG, and prove that nothing is missing.

    Copies are the nodes of a cluster or directories of stopped nodes (--raw), and
    archives. OUTPUT gets the report. Exits with 5 if anything is wrong.
    """
    from braidlog.pipelines.audit_job import audit

    origin = session.origin(log, raw, archive=include_archive)
    with running_in() as arguments:
        done = audit(origin, output, archives=archives, **arguments)
    tell(session, done)
    findings = done.published["findings"]
    if not session.as_json:
        for each in findings:
            at = f"position {each['position']}: " if each["position"] else ""
            message(
                f"{each['kind']}: {each['copy'] or 'all copies'}: {at}{each['problem']}"
            )
        for text in done.published["behind"]:
            message(f"note: {text}")
    if findings:
        raise Problem(
            f"{len(findings)} findings, the first bad position is"
            f" {min((f['position'] for f in findings if f['position']), default=0)}",
            "`braidlog verify` shows the damage of one directory",
            CORRUPTION,
        )
