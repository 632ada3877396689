"""Groups whose commands are imported when they are asked for.

All commands together take longer to import than most of them take to run.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

__all__ = ["LateGroup"]


class LateGroup(click.Group):
    """A group of commands of other files, beside those that were added to it."""

    def __init__(
        self, *args: Any, late: Mapping[str, tuple[str, str]], **kwargs: Any
    ) -> None:
        """Take the other commands: name to module of this package, and attribute."""
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
        package = importlib.import_module(f"{__package__}.{module}")
        found: click.Command = getattr(package, attribute)
        return found
