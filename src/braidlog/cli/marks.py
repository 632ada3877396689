"""Options for when an application's snapshots are taken, and when calls are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from braidlog.cli import parameters

if TYPE_CHECKING:
    from braidlog.app import SnapshotSettings

__all__ = ["snapshot_options", "take_settings"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

# Option, field of `SnapshotSettings`, type, help.
_OPTIONS: Final[tuple[tuple[str, str, Any, str], ...]] = (
    ("--soft-bytes", "soft_bytes", parameters.size, "Log that asks for a snapshot."),
    ("--hard-bytes", "hard_bytes", parameters.size, "Log at which calls are refused."),
    (
        "--soft-seconds",
        "soft_seconds",
        parameters.seconds,
        "Estimated replay that asks for a snapshot.",
    ),
    (
        "--hard-seconds",
        "hard_seconds",
        parameters.seconds,
        "Estimated replay at which calls are refused.",
    ),
    ("--snapshots-kept", "kept", click.IntRange(1), "Snapshots that are kept."),
    (
        "--snapshots-min",
        "snapshots_min",
        click.IntRange(1),
        "Hosts that must have a snapshot before the log is trimmed to it.",
    ),
)


def snapshot_options(command: _Command) -> _Command:
    """Add the options to a command."""
    for option, field, kind, text in reversed(_OPTIONS):
        command = click.option(option, field, type=kind, help=text)(command)
    return command


def take_settings(given: dict[str, Any]) -> SnapshotSettings:
    """Take the options out of what a command was given; the rest is as it is set.

    Raises:
        InvalidArgumentError: a hard mark is not above the soft one.
    """
    from braidlog.app import SnapshotSettings

    taken = {field: given.pop(field) for _, field, _, _ in _OPTIONS}
    return SnapshotSettings(**{k: v for k, v in taken.items() if v is not None})
