"""``braidlog demo``: the main job on real input."""

from __future__ import annotations

from pathlib import Path

import click

from braidlog.cli.session import Session, command

__all__ = ["demo"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@command()
@click.option(
    "--git",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Repository whose history is imported [default: the one around this folder].",
)
@click.option(
    "--input", "input_", type=_FILE, help="Recorded changes, not a repository."
)
@click.option("--oracle", type=_FILE, help="What the state must be at their end.")
@click.option(
    "--output",
    "-o",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-out"),
    show_default=True,
    help="Where plots and the log go.",
)
@click.option("--spark/--no-spark", default=True, help="Run the Spark job.")
@click.pass_obj
def demo(
    session: Session,
    *,
    git: Path | None,
    input_: Path | None,
    oracle: Path | None,
    output: Path,
    spark: bool,
) -> None:
    """Run the main job on real input.

    Import a repository's history, crash, recover, replay, check and analyse it.
    """
    if (input_ is None) != (oracle is None):
        raise click.UsageError("--input and --oracle go together")
    if git is not None and input_ is not None:
        raise click.UsageError("--git and --input exclude each other")
    from braidlog import demo as job

    job.run(
        git=git,
        input=input_,
        oracle=oracle,
        output=output,
        spark=spark,
        as_json=session.as_json,
    )
