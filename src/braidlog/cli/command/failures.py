"""What a failure looks like to the caller: exit code, message and next step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import click

from braidlog import errors

FAILURE = 1
USAGE = 2
NOT_FOUND = 3
LOCKED = 4
CORRUPTION = 5
OUT_OF_RANGE = 6
LOG_FULL = 7
WAIT = 8
REFUSED = 9
# The shell's numbers for a process that a signal ended are above this.
SIGNALS = 128
INTERRUPTED = 130
BROKEN_PIPE = 141

# What programs go by: these words never change, and are those of the exit codes.
_WORDS = {
    FAILURE: "failure",
    USAGE: "usage",
    NOT_FOUND: "not_found",
    LOCKED: "locked",
    CORRUPTION: "corruption",
    OUT_OF_RANGE: "out_of_range",
    LOG_FULL: "log_full",
    WAIT: "wait",
    REFUSED: "refused",
}

# In this order: the first class that fits decides.
_EXIT_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (errors.NotFoundError, NOT_FOUND),
    (errors.LockedError, LOCKED),
    (errors.CorruptionError, CORRUPTION),
    (errors.PositionError, OUT_OF_RANGE),
    (errors.TrimmedError, OUT_OF_RANGE),
    (errors.LostRecordsError, CORRUPTION),
    (errors.BeyondEndError, OUT_OF_RANGE),
    (errors.LogFullError, LOG_FULL),
    (FileNotFoundError, NOT_FOUND),
    (click.UsageError, USAGE),
)


# What to do next in terms of the command line; `errors` has it in terms of Python. The
# nearest class counts, and its attributes fill the braces.
_HINTS: dict[type[BaseException], str] = {
    errors.LogError: "",
    errors.UnavailableError: "fix the cause, then run the command again",
    errors.LockedError: "stop that process first; reading works while it runs",
    errors.LogFullError: "make room with `braidlog trim` or `braidlog log delete`;"
    " `braidlog cursor list` shows the pins that keep records",
    errors.DeadlineError: "a write may still have been stored: check before you run the"
    " command again; `braidlog import --producer` never stores a row twice",
    errors.NotReadyError: "run it again in a moment;"
    " `braidlog cluster status` shows what is missing",
    errors.NotPrimaryError: "run it again in a moment",
    errors.ConnectionLostError: "check --cluster, and whether the nodes are running",
    errors.LogInUseError: "drop the tables first, then delete the log",
    errors.TableCursorError: "use another cursor; this one goes with its table",
    errors.TablePinError: "flush or drop the table, then trim again",
    errors.MetadataFullError: "delete unused logs or cursors, then run it again",
    errors.SealedError: "`braidlog stream unseal` lets it take appends again",
    errors.UnauthorizedError: "set BRAIDLOG_TOKEN or pass --token-file with a token"
    " whose role allows this; with TLS also check --tls-ca",
    errors.ProtocolError: "check that a Braidlog node of this version listens there,"
    " and whether it wants --tls-ca",
    errors.TrimmedError: "`braidlog read LOG --begin {first}` reads what is left",
    errors.LostRecordsError: (
        "--skip-holes continues behind the lost records; `braidlog verify` "
        "lists all holes"
    ),
    errors.BeyondEndError: "`braidlog tail LOG --follow` waits for new records;"
    " `braidlog log list` shows the end of each log",
    errors.ClosedError: "run it again",
    errors.StoreFailedError: "check the disk, then run the command again;"
    " acknowledged records are safe",
    errors.FencedError: "somebody else was faster; look at what there is now, then"
    " decide again",
    errors.PositionError: "positions begin at 1; `braidlog tail LOG --lines 1` prints"
    " the last record",
    errors.TooLargeError: "split it, or store it elsewhere and append a reference",
    errors.NotFoundError: (
        "`braidlog log list` shows the logs; `braidlog log create` creates one"
    ),
    errors.AlreadyExistsError: "choose another name, or another directory",
    errors.ReadOnlyError: (
        "run it as a user and on a machine that may write to the data directory"
    ),
    errors.SequenceGapError: "run the import again: it continues behind the last row",
    errors.ForeignPeerError: (
        "check the address, and whether both sides use TLS: --tls-ca here, "
        "[security] certificate of the node"
    ),
    errors.UnknownProducerError: (
        "check what the log contains, then import the rest with another --producer"
    ),
    errors.SequenceExpiredError: "the record is stored: do not send it again",
    errors.ForeignFormatError: "check --data; if it is the right directory, the file is"
    " damaged and `braidlog verify` shows how",
    errors.NewerFormatError: "upgrade braidlog to open it",
    errors.CorruptionError: "`braidlog verify` shows the damage,"
    " `braidlog repair --dry-run` what would be lost",
    errors.InternalError: "the log of the node has the traceback: please report it",
    errors.ArchiveDamagedError: "restore the file of the archive from a copy",
    errors.BackupDamagedError: "use another backup, or put the file back from a copy;"
    " `braidlog backup verify` names everything that is damaged",
    errors.MissingFileError: "restore the file, or see `braidlog repair --dry-run`",
}

# Options of every command, which do not go before it.
_SHARED = {"-d", "--data", "--cluster", "--json"}


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure, ready to print."""

    exit_code: int
    message: str
    hint: str = ""
    notes: tuple[str, ...] = ()
    number: int | None = None
    """Number of the error that it came from, if there was one; see `errors`."""


class Problem(Exception):
    """A failure that the command line itself found."""

    def __init__(self, message: str, hint: str = "", exit_code: int = FAILURE) -> None:
        """Say what is wrong and what to do next."""
        super().__init__(message)
        self.failure = Failure(exit_code, message, hint)


KNOWN = (
    errors.LogError,
    Problem,
    click.ClickException,
    ImportError,
    OSError,
    UnicodeEncodeError,
)
"""Everything that is explained in one line; the rest is a bug and shows its trace."""


def explain(error: BaseException) -> Failure:
    """Return how `error`, one of `KNOWN`, is shown."""
    notes = tuple(getattr(error, "__notes__", ()))
    number = error.code if isinstance(error, errors.LogError) else None
    return replace(_explained(error), notes=notes, number=number)


def interrupted(exit_code: int, reason: BaseException) -> Failure:
    """Return how a command is shown that a person or a signal ended."""
    notes = tuple(getattr(reason, "__notes__", ()))
    return Failure(exit_code, "interrupted", notes=notes)


def described(failure: Failure) -> dict[str, Any]:
    """Return a failure for programs, as ``--json`` prints it."""
    return {
        "code": _WORDS.get(failure.exit_code, "interrupted"),
        "exit_code": failure.exit_code,
        "number": failure.number,
        "message": " ".join(failure.message.split()),
        "hint": failure.hint,
        "notes": list(failure.notes),
    }


def _explained(error: BaseException) -> Failure:
    if isinstance(error, Problem):
        return error.failure
    for reason in (error, error.__cause__):
        if isinstance(reason, UnicodeEncodeError):
            return Failure(USAGE, f"{reason.object!r} is not UTF-8")
    code = next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), 1)
    if isinstance(error, errors.LogError):
        # One that the error came with knows more than its class.
        hint = vars(error).get("hint") or _hint_of(error)
        return Failure(code, error.message or type(error).__name__, hint)
    if isinstance(error, click.UsageError):
        return Failure(code, error.format_message(), _usage_hint(error))
    if isinstance(error, click.ClickException):
        return Failure(code, error.format_message())
    if isinstance(error, ImportError):
        return Failure(code, str(error), _install_hint(error))
    return Failure(code, _system_message(error))


def _hint_of(error: errors.LogError) -> str:
    """Return the hint of the nearest class: one for the command line, or its own.

    An error of an upper layer often says more than the one that it is a kind of: a
    command that diverged is corruption, and `braidlog repair` cannot mend it.
    """
    for kind in type(error).__mro__:
        if kind in _HINTS:
            return _HINTS[kind].format(**vars(error))
        if own := vars(kind).get("hint"):
            return str(own)
    return ""


def _usage_hint(error: click.UsageError) -> str:
    path = error.ctx.command_path if error.ctx else "braidlog"
    if isinstance(error, click.NoSuchOption) and error.option_name[1:2].isdigit():
        return "positions begin at 1; `braidlog tail LOG --lines 1` prints the last"
    at_group = error.ctx is not None and isinstance(error.ctx.command, click.Group)
    if (
        at_group
        and isinstance(error, click.NoSuchOption)
        and error.option_name in _SHARED
    ):
        return f"put {error.option_name} after the command; {path} --help"
    return f"{path} --help"


def _install_hint(error: ImportError) -> str:
    extras = {
        "pyarrow": "arrow",
        "pyspark": "spark",
        "matplotlib": "demo",
        "msgspec": "cluster",
        "prometheus_client": "cluster",
        "uvloop": "cluster",
        "apsw": "app",
        "cbor2": "app",
        "deltalake": "lake",
        "pyiceberg": "lake",
    }
    extra = extras.get((error.name or "").partition(".")[0])
    return f"pip install 'braidlog[{extra}]'" if extra else ""


def _system_message(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return str(error)
