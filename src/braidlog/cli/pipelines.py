"""``braidlog pipeline``: what reads whole logs, here or in Spark."""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from braidlog.cli import parameters
from braidlog.cli.commands import EitherCommand, command
from braidlog.cli.failures import USAGE, Problem
from braidlog.cli.output import facts, message
from braidlog.cli.progress import meter
from braidlog.cli.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braidlog.pipelines import Outlook, Report
    from braidlog.pipelines.origin import Origin

__all__ = ["pipeline"]

_DIRECTORY: Final = click.Path(file_okay=False, path_type=Path)
_LONG: Final = ("files", "rows", "hashes")
"""What a person finds in the manifest, and programs in the JSON."""


@click.group()
def pipeline() -> None:
    """Make something else of whole logs, in processes or in Spark.

    Each command can be interrupted: run again, it goes on. Done once, it changes
    nothing. What it read, made and proved is in report.json of its directory.
    """


def running(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say where tasks run."""
    for option in (
        click.option(
            "--conf",
            multiple=True,
            metavar="NAME=VALUE",
            help="Setting of Spark. Any number of times.",
        ),
        click.option(
            "--master",
            metavar="URL",
            help="Run in Spark, with this master: local[*], spark://host:7077, yarn.",
        ),
        click.option("--spark", is_flag=True, help="Run in Spark, on this machine."),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            help="Run in so many processes [default: one for each core].",
        ),
    ):
        function = option(function)
    return function


def raw_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add the option that names directories of dead nodes."""
    return click.option(
        "--raw",
        multiple=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="Directory of a node that does not run any more. Once for each node.",
    )(function)


def origin_of(session: Session, log: str, raw: tuple[Path, ...] = ()) -> Origin:
    """Return where the log is that the options name."""
    from braidlog.pipelines.origin import Origin

    if raw:
        return Origin(log, raw=tuple(str(path) for path in raw))
    target = session.cluster
    if target is not None:
        authority = "" if target.authority is None else str(target.authority)
        return Origin(log, cluster=target.seeds, ca=authority, token=target.token)
    session.require()
    return Origin(log, path=str(session.data))


@contextlib.contextmanager
def place(
    name: str, *, workers: int | None, spark: bool, master: str | None, conf: Any
) -> Iterator[dict[str, Any]]:
    """Start what tasks run in, show progress; give the arguments for a pipeline.

    Raises:
        Problem: the options do not fit together.
    """
    if (spark or master) and workers is not None:
        raise Problem("--workers and Spark exclude each other", "say one", USAGE)
    if conf and not (spark or master):
        raise Problem("--conf is for Spark", "say --spark or --master", USAGE)
    settings = {}
    for each in conf:
        key, equals, value = each.partition("=")
        if not equals:
            text = f"{each!r} is no setting"
            raise Problem(text, "write spark.executor.memory=4g", USAGE)
        settings[key] = value
    with contextlib.ExitStack() as stack:
        given: dict[str, Any] = {"workers": workers}
        if spark or master:
            chosen = master or "local[*]"
            given = {"spark": stack.enter_context(_spark(name, chosen, settings))}
        bar = stack.enter_context(meter(name, None, unit="tasks"))

        def show(outlook: Outlook) -> None:
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
        error.add_note(f"what Spark said is in {said}")
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
        message("note: this job was done before; nothing was changed")


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

        made = command(name, kind=EitherCommand)(running(click.pass_obj(call)))
        pipeline.add_command(made)
        return made

    return decorate


Place = Callable[[], contextlib.AbstractContextManager[dict[str, Any]]]


@subcommand("compact")
@click.argument("log")
@click.argument("output", type=_DIRECTORY)
@raw_option
@click.option("--until", type=parameters.POSITION, help="Last position that counts.")
@click.option(
    "--tombstone",
    default="empty",
    show_default=True,
    metavar="KIND",
    help="Records that say that their key is gone: empty (values), none,"
    " pattern=REGEX (in values), header=NAME.",
)
def compact_(
    session: Session,
    running_in: Place,
    *,
    log: str,
    output: Path,
    raw: tuple[Path, ...],
    until: int | None,
    tombstone: str,
) -> None:
    """Write the latest record of each key to OUTPUT, as Parquet."""
    from braidlog.pipelines.compact import Tombstones, compact

    kind, _, text = tombstone.partition("=")
    gone = Tombstones(kind, text)
    origin = origin_of(session, log, raw)
    with running_in() as arguments:
        done = compact(origin, output, until=until, tombstones=gone, **arguments)
    tell(session, done)
