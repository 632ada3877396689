"""Calls the command line in this process.

A process of its own takes half a second to start, more than most commands take; tests
of what only a process does (signals, its ends, kills) start one.
"""

from __future__ import annotations

from collections.abc import Mapping

from click.testing import CliRunner, Result

from braidlog.cli import main


def call(
    *arguments: object,
    stdin: str | bytes | None = None,
    environment: Mapping[str, str] | None = None,
) -> Result:
    """Run a command, and return what it printed and how it ended."""
    runner = CliRunner(catch_exceptions=False)
    return runner.invoke(main, [*map(str, arguments)], input=stdin, env=environment)


def said(
    *arguments: object,
    code: int = 0,
    stdin: str | bytes | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command that has to end like this, and return what it printed."""
    done = call(*arguments, stdin=stdin, environment=environment)
    assert done.exit_code == code, (arguments, done.stdout + done.stderr)
    return done.stdout
