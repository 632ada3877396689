"""The command line of the demonstration, which `braidlog demo` starts."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console

from braidlog.cli.command import parameters
from braidlog.cli.command.failures import Problem
from braidlog.cli.command.parameters import LocalPath

__all__ = ["demo"]

_FILE = LocalPath(exists=True, dir_okay=False)
_NEW_FOLDER = LocalPath(file_okay=False)


# Not one of `session.command`: the demo never touches the data directory that the other
# commands share, it makes one of its own.
@click.command()
@click.option(
    "--git",
    type=LocalPath(exists=True, file_okay=False),
    help=("Repository whose history is imported [default: the one you are in]."),
)
@click.option(
    "--input",
    "input_",
    type=_FILE,
    help=("Recorded changes instead of a repository: JSON lines, plain or .zst."),
)
@click.option("--oracle", type=_FILE, help="Expected state at the end of --input.")
@click.option(
    "--out",
    "-o",
    type=_NEW_FOLDER,
    default=Path("demo-out"),
    show_default=True,
    help="Directory for the plot (PNG) and the report (HTML).",
)
@click.option(
    "--data",
    "-d",
    type=_NEW_FOLDER,
    metavar="DIR",
    help="Data directory to make [default: a fresh one below --out].",
)
@click.option("--keep", is_flag=True, help="Keep the data directory.")
@click.option("--spark/--no-spark", default=True, help="Run the Spark job.")
@click.option(
    "--kills",
    type=parameters.Whole(0),
    default=1,
    show_default=True,
    help="How often to kill the importing process, or the primary.",
)
@click.option(
    "--nodes",
    type=parameters.Whole(1, 9),
    help=(
        "Import through a local cluster with this many nodes, and "
        "kill its primary instead of the importing process."
    ),
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def demo(
    *,
    git: Path | None,
    input_: Path | None,
    oracle: Path | None,
    out: Path,
    data: Path | None,
    keep: bool,
    spark: bool,
    kills: int,
    nodes: int | None,
    as_json: bool,
) -> None:
    """Run the main job on real input.

    Import a repository's history, crash, recover, replay, check and analyse it.

    Every change becomes a record. The importing process is killed with SIGKILL on the
    way and goes on from where the log says it stopped. Then a replay must give exactly
    the files that git has, and Spark must count what the replay counts. Exits with 1 if
    anything is not equal.

    With --nodes the log is in a cluster on this machine, and what is killed is the node
    that takes the appends: the import goes on with another, and the gap is shown.
    """
    if (input_ is None) != (oracle is None):
        raise click.UsageError("--input needs --oracle, and --oracle needs --input")
    if git is not None and input_ is not None:
        raise click.UsageError("--git and --input cannot be combined")
    from examples.demo import DemoError, DemoOptions, run_demo

    options = DemoOptions(
        git=git or Path(),
        input=input_,
        oracle=oracle,
        data=data,
        out=out,
        keep=keep,
        spark=spark,
        kills=kills,
        nodes=nodes,
    )
    try:
        # With --json stdout is for the report alone.
        report = run_demo(options, Console(stderr=as_json, highlight=False))
    except DemoError as error:
        raise Problem(str(error)) from error
    if as_json:
        click.echo(json.dumps(report.to_json(), separators=(",", ":")))
    if not report.passed:
        raise click.exceptions.Exit(1)
