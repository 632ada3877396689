"""``braidlog verify`` and ``braidlog repair``: find damage; save what can be saved."""

from __future__ import annotations

from pathlib import Path

import click

from braidlog.cli import failures
from braidlog.cli.output import facts, human_bytes, line, message, plain, rows
from braidlog.cli.progress import meter
from braidlog.cli.session import Session, command

__all__ = ["repair", "verify"]


@command()
@click.pass_context
def verify(context: click.Context) -> None:
    """Check every checksum and invariant.

    Changes nothing; ends with code 5 if it finds damage.
    """
    from braidlog.storage import inspect as files

    session: Session = context.obj
    session.require()
    with meter("verify", None, unit="bytes") as progress:
        report = files.verify(session.data, progress=progress.at)
    if session.as_json:
        facts(session, report)
    else:
        rows(session, report.findings, empty="no damage found")
        message(
            f"checked {report.segments} segments, {report.frames} frames,"
            f" {report.records} records, {human_bytes(report.bytes)}"
        )
    if report.findings:
        if not session.as_json:
            message("hint: `braidlog repair` shows what would be lost")
        context.exit(failures.CORRUPTION)


@command()
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="Directory of the repaired copy [default: DIR-repaired].",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be lost.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def repair(session: Session, *, output: Path | None, dry_run: bool, yes: bool) -> None:
    """Make a copy that opens again.

    Shows what would be lost and asks first; the original stays as it is.
    """
    from braidlog.storage import inspect as files

    session.require()
    plan = files.repair_plan(session.data)
    if not session.as_json:
        rows(session, plan.losses, empty="nothing would be lost")
    if dry_run:
        if session.as_json:
            facts(session, plan)
        return
    target = output or session.data.with_name(session.data.name + "-repaired")
    if target.exists():
        raise failures.Problem(f"{target} exists", "name another with --output")
    lost = sum(loss.records for loss in plan.losses)
    if lost:
        session.confirm(f"make {target} without {lost} lost records", yes=yes)
    with meter("repair", None, unit="bytes") as progress:
        files.repair(session.data, target, progress=progress.at)
    line(
        session,
        f"repaired copy in {target}; verify it, then put it in place of {session.data}",
        output=str(target),
        losses=plain(plan.losses),
    )
