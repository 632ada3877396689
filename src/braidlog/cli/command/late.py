"""Groups whose commands are imported when they are asked for.

All commands together take longer to import than most of them take to run.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, Final

import click

_PACKAGE: Final = "braidlog.cli"


class LateGroup(click.Group):
    """A group of commands of other files, beside those that were added to it."""

    def __init__(
        self, *args: Any, late: Mapping[str, tuple[str, str]], **kwargs: Any
    ) -> None:
        """Take the other commands: name to module of `braidlog.cli`, and attribute."""
        super().__init__(*args, **kwargs)
        self._late = dict(late)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List those that were added in their order, then the others in theirs."""
        return list(dict.fromkeys([*self.commands, *self._late]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, if there is one of that name."""
        if cmd_name not in self._late:
            return super().get_command(ctx, cmd_name)
        module, attribute = self._late[cmd_name]
        package = importlib.import_module(f"{_PACKAGE}.{module}")
        found: click.Command = getattr(package, attribute)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called; say which one may be meant.

        Raises:
            click.UsageError: there is no such command.
        """
        name = args[0]
        known = self.get_command(ctx, name) is not None
        if known or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, self.list_commands(ctx), cutoff=0.7)
        meant = f" Did you mean {' or '.join(repr(each) for each in near)}?"
        ctx.fail(f"No such command {name!r}.{meant if near else ''}")
