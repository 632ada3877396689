"""What every command gets: the data directory and where to print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import click

import braidlog
from braidlog.cli.failures import NOT_FOUND, USAGE, Problem
from braidlog.errors import NotFoundError

__all__ = ["Command", "Session", "command", "stdin"]


# One of these is in every data directory, however damaged.
_SIGNS = ("LOCK", "IDENTITY", "CURRENT", "wal")


@dataclass(frozen=True, slots=True)
class Session:
    """The options that every command shares."""

    data: Path
    as_json: bool = False

    @contextmanager
    def reader(self) -> Iterator[braidlog.Node]:
        """Open the data directory read-only; any number of processes may."""
        self.require()
        with braidlog.open(self.data, read_only=True) as node:
            yield node

    @contextmanager
    def writer(self, *, create: bool = False) -> Iterator[braidlog.Node]:
        """Open the data directory as its one writer; make it only if `create`."""
        if not create:
            self.require()
        with braidlog.open(self.data) as node:
            yield node

    def require(self) -> None:
        """Refuse a directory that is not there.

        Raises:
            Problem: There is nothing to open.
        """
        if not any((self.data / name).exists() for name in _SIGNS):
            where = self.data.absolute()
            raise Problem(
                f"no Braidlog data in {where}"
                if where.is_dir()
                else f"no data directory at {where}",
                "name it with --data or BRAIDLOG_DATA;"
                " `braidlog log create NAME` makes one",
                NOT_FOUND,
            )

    @contextmanager
    def files(self) -> Iterator[None]:
        """Look into the files without opening the data directory."""
        self.require()
        try:
            yield
        except NotFoundError as error:
            raise Problem(
                error.message,
                "`braidlog inspect segments`, `braidlog log list` show what is there",
                NOT_FOUND,
            ) from None

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is lost; only a person at a terminal is asked.

        Raises:
            Problem: The answer is no, or nobody can answer and `yes` was not given.
        """
        if yes:
            return
        if sys.stdin is None or not sys.stdin.isatty():
            raise Problem(f"{question} needs an answer", "say --yes", USAGE)
        if not click.confirm(f"{question}?", err=True):
            raise Problem("nothing was changed")


def stdin() -> BinaryIO:
    """Return the bytes of stdin.

    Raises:
        Problem: It is closed.
    """
    if sys.stdin is None:
        raise Problem("stdin is closed", "name what to take, or pipe it in", USAGE)
    return sys.stdin.buffer


class Command(click.Command):
    """A command with the shared options, which become its `Session`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Add the shared options behind the command's own."""
        super().__init__(*args, **kwargs)
        self.params += [
            click.Option(
                ["--data", "-d"],
                type=click.Path(file_okay=False, path_type=Path),
                default=Path("data"),
                envvar="BRAIDLOG_DATA",
                metavar="DIR",
                help="Data directory [env: BRAIDLOG_DATA; default: ./data].",
            ),
            click.Option(
                ["--json", "as_json"],
                is_flag=True,
                help="Print JSON, one value a line, and nothing else.",
            ),
        ]

    def invoke(self, ctx: click.Context) -> Any:
        """Turn the shared options into the session that the command is passed."""
        ctx.obj = Session(ctx.params.pop("data"), ctx.params.pop("as_json"))
        return super().invoke(ctx)


def command(name: str | None = None) -> Callable[[Callable[..., None]], Command]:
    """Make a function a command that gets a `Session` first."""
    return click.command(name, cls=Command)
