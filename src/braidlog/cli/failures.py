"""What a failure looks like to the caller: exit code, message and next step."""

from __future__ import annotations

from dataclasses import dataclass

import click

from braidlog import errors

__all__ = [
    "BROKEN_PIPE",
    "CORRUPTION",
    "FAILURE",
    "INTERRUPTED",
    "KNOWN",
    "LOCKED",
    "LOG_FULL",
    "NOT_FOUND",
    "OUT_OF_RANGE",
    "USAGE",
    "Failure",
    "Problem",
    "explain",
]

FAILURE = 1
USAGE = 2
NOT_FOUND = 3
LOCKED = 4
CORRUPTION = 5
OUT_OF_RANGE = 6
LOG_FULL = 7
# The shell's numbers for a process that SIGINT or SIGPIPE ended.
INTERRUPTED = 130
BROKEN_PIPE = 141

# In this order: the first class that fits decides.
_EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.NotFoundError, NOT_FOUND),
    (errors.LockedError, LOCKED),
    (errors.CorruptionError, CORRUPTION),
    (errors.TrimmedError, OUT_OF_RANGE),
    (errors.BeyondEndError, OUT_OF_RANGE),
    (errors.LogFullError, LOG_FULL),
    (FileNotFoundError, NOT_FOUND),
    (click.UsageError, USAGE),
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure, ready to print."""

    exit_code: int
    message: str
    hint: str = ""


class Problem(Exception):
    """A failure that the command line itself found."""

    def __init__(self, message: str, hint: str = "", exit_code: int = FAILURE) -> None:
        """Say what is wrong and what to do next."""
        super().__init__(message)
        self.failure = Failure(exit_code, message, hint)


KNOWN = (errors.LogError, Problem, click.ClickException, ImportError, OSError)
"""Everything that is explained in one line; the rest is a bug and shows its trace."""


def explain(error: BaseException) -> Failure:
    """Return how `error`, one of `KNOWN`, is shown."""
    if isinstance(error, Problem):
        return error.failure
    code = next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1)
    if isinstance(error, errors.LogError):
        return Failure(code, error.message or type(error).__name__, error.hint)
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "braidlog"
        return Failure(code, error.format_message(), f"{path} --help")
    if isinstance(error, click.ClickException):
        return Failure(code, error.format_message())
    if isinstance(error, ImportError):
        return Failure(code, str(error), _install_hint(error))
    return Failure(code, _system_message(error))


def _install_hint(error: ImportError) -> str:
    extras = {"pyarrow": "arrow", "pyspark": "spark", "matplotlib": "demo"}
    extra = extras.get((error.name or "").partition(".")[0])
    return f"pip install 'braidlog[{extra}]'" if extra else ""


def _system_message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return str(error)
