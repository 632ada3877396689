"""``braidlog verify`` and ``braidlog repair``: find damage; save what can be saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Literal

import click

from braidlog.cli.command import failures
from braidlog.cli.command.commands import command
from braidlog.cli.command.options import yes_option
from braidlog.cli.command.parameters import LocalPath
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import facts, line, message, plain, rows
from braidlog.cli.terminal.progress import meter
from braidlog.cli.terminal.text import counted, human_bytes


@command()
def verify(session: Session) -> None:
    """Check every checksum and invariant.

    Changes nothing. Exits with 5 if it finds damage.
    """
    from braidlog.store import inspect as files

    with session.files(), meter("verify", None, unit="bytes") as progress:
        report = files.verify(session.data, progress=progress.at)
    if session.as_json:
        facts(session, report)
    else:
        rows(session, report.findings, empty="no damage found")
        for note in report.notes:
            at = "" if note.offset is None else f" at {note.offset}"
            message(f"note: {note.path}{at}: {note.problem}")
        message(
            f"checked {counted(report.segments, 'segment')},"
            f" {counted(report.frames, 'frame')}, {counted(report.records, 'record')},"
            f" {human_bytes(report.bytes)}"
        )
    if report.findings:
        if not session.as_json:
            for step in dict.fromkeys(found.next_step for found in report.findings):
                message(f"hint: {step}")
        raise click.exceptions.Exit(failures.CORRUPTION)


@command()
@click.option(
    "--output",
    "-o",
    type=LocalPath(),
    help="Directory of the repaired copy [default: DIR-repaired].",
)
@click.option(
    "--keep",
    type=click.Choice(["all", "most", "newest", "oldest"]),
    default="all",
    show_default=True,
    help=(
        "What to keep of a log with lost records: all, with a "
        "declared hole, or one side."
    ),
)
@click.option("--dry-run", is_flag=True, help="Only show what would be lost.")
@yes_option
def repair(
    session: Session,
    *,
    output: Path | None,
    keep: Literal["all", "most", "newest", "oldest"],
    dry_run: bool,
    yes: bool,
) -> None:
    """Write an undamaged copy of a damaged directory.

    Shows what would be lost and asks first. The original is not changed.
    """
    from braidlog.store import inspect as files

    with session.files(), meter("look", None, unit="bytes") as progress:
        plan = files.repair_plan(session.data, keep=keep, progress=progress.at)
    if not session.as_json:
        rows(session, plan.losses, empty="no records would be lost")
        for guess in plan.guesses:
            message(f"note: {guess}")
    if dry_run:
        if session.as_json:
            facts(session, plan)
        return
    # A name such as . has none that another could be made of.
    named = session.data.name not in {"", ".."}
    data = session.data if named else session.data.resolve()
    target = output or data.with_name(data.name + "-repaired")
    if target.exists():
        raise failures.Problem(
            f"{target} exists already", "choose another directory with --output"
        )
    if target.resolve().is_relative_to(session.data.resolve()):
        hint = "choose a directory outside of it with --output"
        raise failures.Problem(f"{target} is inside {data}", hint, failures.USAGE)
    lost = sum(loss.records for loss in plan.losses)
    if plan.losses:
        every = all(loss.log is not None for loss in plan.losses)
        known = counted(lost, "lost record") if every else "what is lost"
        session.confirm(f"create {target} without {known}", yes=yes)
    with meter("repair", None, unit="bytes") as progress, _noting_halves(target):
        done = files.repair(session.data, target, keep=keep, progress=progress.at)
    line(
        session,
        f"verified copy in {target}: {counted(done.report.records, 'record')},"
        f" {human_bytes(done.report.bytes)}",
        output=str(target),
        losses=plain(plan.losses),
        guesses=plan.guesses,
    )
    if not session.as_json:
        aside = data.with_name(data.name + "-damaged")
        old, new, kept = (quote(str(path)) for path in (data, target, aside))
        message(f"hint: to use it, mv {old} {kept} && mv {new} {old}")


@contextmanager
def _noting_halves(target: Path) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        if target.exists():
            error.add_note(f"{target} is incomplete: remove it before the next repair")
        raise
