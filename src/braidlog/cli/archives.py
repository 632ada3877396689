"""``braidlog archive`` and ``braidlog pipeline archive``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from braidlog.cli.command import parameters
from braidlog.cli.command.commands import PlainCommand, group_of
from braidlog.cli.command.failures import CORRUPTION, NOT_FOUND, USAGE, Problem
from braidlog.cli.command.session import Session
from braidlog.cli.pipelines import Place, subcommand, tell
from braidlog.cli.terminal.output import facts, message
from braidlog.cli.terminal.progress import meter
from braidlog.cli.terminal.text import clock, human_bytes
from braidlog.errors import NotFoundError

if TYPE_CHECKING:
    from braidlog.archive import Archive


@click.group(cls=group_of(PlainCommand))
def archive() -> None:
    """Inspect archives; `pipeline archive` makes them."""


def _opened(location: str) -> Archive:
    from braidlog.archive import open_archive

    try:
        return open_archive(location)
    except NotFoundError as error:
        hint = "name the directory that `braidlog pipeline archive` wrote"
        raise Problem(error.message, hint, NOT_FOUND) from None


@archive.command()
@click.argument("location")
def show(session: Session, location: str) -> None:
    """Show the contents of the archive at LOCATION, a directory or a URI."""
    found = _opened(location)
    manifest = found.manifest
    size = sum(file.bytes for file in manifest.files)
    described = {
        "archive": found.location,
        "log": manifest.log,
        "log_id": manifest.log_id,
        "generation": manifest.generation,
        "begin": found.begin,
        "end": found.end,
        "records": found.end - found.begin,
        "files": len(manifest.files),
        "bytes": size,
        "timestamp_min": min(file.timestamp_min for file in manifest.files),
        "timestamp_max": max(file.timestamp_max for file in manifest.files),
        "streams": sorted({s.stream for file in manifest.files for s in file.streams}),
    }

    def shown(named: dict[str, Any]) -> dict[str, Any]:
        times = {key: clock(named[key]) for key in ("timestamp_min", "timestamp_max")}
        return {**named, **times, "bytes": human_bytes(size)}

    facts(session, described, shown)


@archive.command("verify")
@click.argument("location")
def verify_(session: Session, location: str) -> None:
    """Read all of the archive at LOCATION and compare it with its manifest."""
    from braidlog.archive import verify

    archived = _opened(location)
    with meter("verify", None, unit="bytes") as progress:
        found = verify(archived, progress=progress.at)
    # What is damaged is said below, in words.
    facts(session, found, lambda named: {**named, "damage": len(named["damage"])})
    for damage in found.damage:
        message(f"{damage.path}: {damage.problem} (from position {damage.begin} on)")
    if not found.sound:
        count = len(found.damage)
        raise Problem(
            f"{count} of {found.files} files differ from what was archived",
            "restore them from a copy",
            CORRUPTION,
        )


@subcommand("archive")
@click.argument("log")
@click.argument("directory", type=parameters.DIRECTORY)
@click.option("--until", type=parameters.POSITION, help="Last position to archive.")
@click.option(
    "--trim",
    is_flag=True,
    help="Then trim the records that were archived and read back.",
)
@click.option(
    "--cursor",
    default="archive",
    show_default=True,
    help="Pinning cursor that marks where the archive ends.",
)
@click.option(
    "--lease",
    type=parameters.lease,
    metavar="DURATION",
    help=(
        "How long the pin holds after the last run, for instance "
        "30d [default: unchanged; at first for ever]."
    ),
)
@click.option(
    "--file-size",
    type=parameters.size,
    default="128MiB",
    show_default=True,
    help="Approximate bytes of log per file.",
)
@click.option("--delta", is_flag=True, help="Make DIRECTORY a Delta table as well.")
@click.option(
    "--iceberg",
    metavar="CATALOG.NAMESPACE.TABLE",
    help="Add the files to this Iceberg table.",
)
def archive_(
    session: Session,
    running_in: Place,
    *,
    log: str,
    directory: Path,
    lease: float | None,
    file_size: int,
    **options: Any,
) -> None:
    """Archive the new records of LOG to DIRECTORY, as Parquet.

    Run it again to resume an interrupted run, or to add what is new.
    """
    from braidlog.pipelines.archive_job import archive as run_archive

    if file_size < 1:
        raise Problem("--file-size must be greater than 0", "for example 128MiB", USAGE)
    if Session(directory).has_data():
        text = (
            f"{directory} is a data directory of Braidlog, so it cannot be an archive"
        )
        raise Problem(text, "choose another directory for the archive", USAGE)
    origin = session.origin(log)
    with running_in() as arguments:
        report = run_archive(
            origin,
            directory,
            lease=lease or None,
            bytes_per_file=file_size,
            **options,
            **arguments,
        )
    tell(session, report)
