"""The root command: registers the groups and turns failures into exit codes."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

import click

from braidlog.cli.command import failures
from braidlog.cli.command.late import LateGroup
from braidlog.cli.command.session import stopped_by_signals
from braidlog.cli.terminal.output import forget, message

# In the order of use.
_COMMANDS: Final = {
    "log": ("log.logs", "log"),
    "append": ("log.append", "append"),
    "import": ("files.importer", "import_"),
    "tail": ("log.read", "tail"),
    "read": ("log.read", "read"),
    "export": ("files.exporter", "export"),
    "trim": ("log.trim", "trim"),
    "cursor": ("log.cursors", "cursor"),
    "table": ("table.tables", "table"),
    "index": ("table.indexes", "index"),
    "archive": ("archives", "archive"),
    "stats": ("log.stats", "stats"),
    "inspect": ("log.inspection", "inspect"),
    "verify": ("damage.repair", "verify"),
    "repair": ("damage.repair", "repair"),
    "backup": ("backups", "backup"),
    "restore": ("backups", "restore"),
    "rescue": ("damage.rescue", "rescue"),
    "bench": ("bench", "bench"),
    "demo": ("demo", "demo"),
    "serve": ("cluster.serve", "serve"),
    "up": ("cluster.serve", "up"),
    "app": ("app.applications", "app"),
    "replay": ("app.replay", "replay_"),
    "pipeline": ("pipelines", "pipeline"),
    "cluster": ("cluster.clusters", "cluster"),
    "node": ("cluster.clusters", "node"),
    "stream": ("cluster.streams", "stream"),
    "token": ("cluster.tokens", "token"),
    "top": ("cluster.top", "top"),
}


class _Stopped(Exception):
    """A person or the reader of stdout ended the command."""

    def __init__(
        self, exit_code: int, interrupt: KeyboardInterrupt | None = None
    ) -> None:
        super().__init__()
        self.exit_code = exit_code
        self.interrupt = interrupt


class Root(LateGroup):
    """A group whose failures are one line, a hint and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run a command and leave the process with its exit code."""
        kwargs["standalone_mode"] = False
        given = kwargs.get("args") or (args[0] if args else None)
        as_json = _wants_json(sys.argv[1:] if given is None else given)
        _write_what_the_locale_lacks()
        try:
            code = super().main(*args, **kwargs)
        except _Stopped as stopped:
            code = stopped.exit_code
            if stopped.interrupt is not None:
                failure = failures.interrupted(code, stopped.interrupt)
                _report(failure, as_json=as_json)
        except click.Abort as abort:
            failure = failures.interrupted(failures.INTERRUPTED, abort)
            code = _report(failure, as_json=as_json)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = failures.USAGE
        except failures.KNOWN as error:
            code = _report(failures.explain(error), as_json=as_json)
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; further out click would give these two its own codes."""
        if sys.stdout is None:
            raise failures.Problem(
                "stdout is closed", "redirect it to a file or /dev/null"
            )
        try:
            with stopped_by_signals():
                result = super().invoke(ctx)
                sys.stdout.flush()
        except BrokenPipeError:
            forget(sys.stdout)
            raise _Stopped(failures.BROKEN_PIPE) from None
        except KeyboardInterrupt as interrupt:
            raise _Stopped(_exit_code(interrupt), interrupt) from None
        return result


def _write_what_the_locale_lacks() -> None:
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, io.TextIOWrapper):
            output.reconfigure(errors="backslashreplace")


def _exit_code(interrupt: KeyboardInterrupt) -> int:
    match interrupt.args:
        case (int(number),):
            return 128 + number
    return failures.INTERRUPTED


def _wants_json(arguments: Sequence[str]) -> bool:
    """Tell whether errors are to be JSON, also those of reading the arguments."""
    options = list(arguments)
    return "--json" in (options[: options.index("--")] if "--" in options else options)


def _report(failure: failures.Failure, *, as_json: bool) -> int:
    if as_json:
        message(json.dumps({"error": failures.described(failure)}))
        return failure.exit_code
    stopped = failure.exit_code > failures.SIGNALS
    message(f"{'' if stopped else 'error: '}{' '.join(failure.message.split())}")
    for note in failure.notes:
        message(f"note: {note}")
    if failure.hint:
        message(f"hint: {failure.hint}")
    return failure.exit_code


_HELP = """Keep a durable, totally ordered log in a directory, or in a cluster.

\b
Start with:
  braidlog log create orders
  echo hello | braidlog append orders
  braidlog read orders

Exit codes: 0 done, 1 failure, 2 usage, 3 not found, 4 locked by another writer,
5 corruption, 6 trimmed or beyond the end, 7 log full, 8 waiting for other nodes or
replicas, 9 refused: not safe.
"""


@click.group(
    cls=Root,
    late=_COMMANDS,
    help=_HELP,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="braidlog", prog_name="braidlog")
def main() -> None:
    """Run the command line."""
