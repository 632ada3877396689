"""``braidlog app``: hosts of applications, and calls of their procedures."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live
from rich.text import Text

from braidlog.cli.cluster.top import hosts as hosts_table
from braidlog.cli.command import parameters
from braidlog.cli.command.commands import ClusterCommand, HostsCommand
from braidlog.cli.command.failures import (
    FAILURE,
    LOCKED,
    NOT_FOUND,
    USAGE,
    Problem,
    explain,
)
from braidlog.cli.command.late import LateGroup
from braidlog.cli.command.options import app_option, host_option, interval_option
from braidlog.cli.command.session import Session
from braidlog.cli.command.target import probe
from braidlog.cli.terminal.output import line, message, rows
from braidlog.errors import (
    InvalidArgumentError,
    LockedError,
    LogError,
    NotFoundError,
    UnavailableError,
)

if TYPE_CHECKING:
    from braidlog.app import Application, Host, SnapshotSettings
    from braidlog.app.caller.caller import Caller
    from braidlog.app.log.stop import Stop

_NEGATIVE = re.compile(r"-\d+(\.\d+)?([eE][+-]?\d+)?")
_NOBODY = "check --hosts or BRAIDLOG_HOSTS; `braidlog app run` starts a host"


_ELSEWHERE = {
    "hosts": ("app.hosts", "hosts"),
    "forget": ("app.hosts", "forget"),
    "resize": ("app.resize", "resize"),
    "snapshot": ("app.snapshots", "snapshot"),
    "replay": ("app.replay", "replay_"),
    "verify": ("app.replay", "verify"),
}


@click.group(cls=LateGroup, late=_ELSEWHERE)
def app() -> None:
    """Run applications on a log, and call their procedures."""


def load(name: str) -> Application:
    """Return the application that ``module:attribute`` names.

    Raises:
        Problem: There is none.
    """
    from braidlog.app.loading import load_application

    try:
        return load_application(name, path=str(Path.cwd()))
    except UnavailableError as error:
        hint = "run the command where Python finds the module, or set PYTHONPATH"
        raise Problem(error.message, hint, NOT_FOUND) from None
    except NotFoundError as error:
        hint = "name an `Application` of that module, as MODULE:NAME"
        raise Problem(error.message, hint, NOT_FOUND) from None
    except InvalidArgumentError as error:
        raise Problem(error.message, "", USAGE) from None


@app.command(cls=ClusterCommand)
@click.argument("application", metavar="MODULE:APP")
@click.option(
    "--directory",
    type=parameters.DIRECTORY,
    help="Keep log and state in this directory, for this process only.",
)
@click.option(
    "--log", "log_name", help="Log of the cluster [default: the application's name]."
)
@click.option(
    "--state", type=parameters.DIRECTORY, help="Directory of this host's state."
)
@click.option(
    "--listen",
    default="",
    metavar="HOST:PORT",
    help="host:port on which to take calls.",
)
@click.option(
    "--http",
    default="",
    metavar="HOST:PORT",
    help="host:port of metrics, health and readiness.",
)
@click.option(
    "--standby", is_flag=True, help="Start as a standby; `app promote` makes it active."
)
@click.option(
    "--join",
    default="",
    metavar="HOST:PORT,...",
    help="Hosts to copy the state from if the local one is too old.",
)
@click.option(
    "--watchdog",
    type=parameters.seconds,
    default="10",
    show_default=True,
    help="Seconds after which a command is aborted, on all hosts.",
)
@click.option(
    "--promote-after",
    type=parameters.seconds_or_off,
    default="30",
    show_default=True,
    metavar="SECONDS|off",
    help="Take over when the active host was silent for this long.",
)
@click.option(
    "--snapshots",
    type=parameters.settings,
    default="",
    metavar="NAME=VALUE,...",
    help=("Snapshot settings, for instance soft_bytes=64MiB,snapshots_min=2."),
)
@click.option(
    "--certificate", type=parameters.FILE, help="PEM certificate chain of the host."
)
@click.option("--key", type=parameters.FILE, help="PEM private key.")
@click.option(
    "--tokens",
    type=parameters.FILE,
    help="Tokens and roles, made by `braidlog token create`.",
)
@click.option(
    "--insecure", is_flag=True, help="Listen beyond loopback without TLS and tokens."
)
def run(
    session: Session,
    /,
    application: str,
    directory: Path | None,
    log_name: str | None,
    state: Path | None,
    join: str,
    watchdog: float,
    promote_after: float | None,
    snapshots: dict[str, str],
    *,
    standby: bool,
    **serving: Any,
) -> None:
    """Run a host of an application until SIGTERM or Ctrl-C.

    With --directory it is the only host. With --cluster and --state its log is in the
    cluster, and any number of hosts on any machines can share it.
    """
    from braidlog.app.execution.succession import Succession
    from braidlog.app.serve.process import run as run_host

    found = load(application)
    settings = _settings(serving)
    taken = _snapshots(snapshots)
    if promote_after is not None:
        Succession(bytes(16), promote_after)  # Refuses what is too short.
    cluster = session.cluster

    def opened(stop: Stop) -> Host:
        if directory is not None:
            options: dict[str, Any] = {"snapshots": taken, "watchdog": watchdog}
            return found.open(directory, **options, stop=stop)
        assert cluster is not None, "checked below"
        assert state is not None, "checked below"
        return found.open_cluster(
            cluster.seeds,
            state,
            log=log_name or "",
            active=not standby,
            join=join,
            token=cluster.token,
            ssl=cluster.context(),
            snapshots=taken,
            watchdog=watchdog,
            promote_after=promote_after,
            stop=stop,
        )

    if directory is None and (cluster is None or state is None):
        text = "a host needs --directory, or --cluster and --state"
        raise Problem(text, "braidlog app run --help", USAGE)
    if directory is not None and (standby or join or state or log_name):
        text = "--standby, --join, --state and --log are for hosts over a cluster"
        raise Problem(text, "pass --cluster, and leave out --directory", USAGE)
    sys.exit(run_host(opened, settings, lambda error: explain(error).exit_code))


def _snapshots(given: dict[str, str]) -> SnapshotSettings:
    """Return the settings of snapshots that were named on the command line."""
    from braidlog.app import SnapshotSettings

    values: dict[str, Any] = {}
    defaults = {field.name: field.default for field in fields(SnapshotSettings)}
    for name, text in given.items():
        if name not in defaults:
            known = ", ".join(sorted(defaults))
            raise Problem(
                f"--snapshots has no setting {name!r}",
                f"the settings are {known}",
                USAGE,
            )
        default = defaults[name]
        try:
            values[name] = _as(type(default), name, text)
        except (ValueError, click.BadParameter) as error:
            raise Problem(f"--snapshots {name}: {error}", "", USAGE) from None
    return SnapshotSettings(**values)


def _as(kind: type, name: str, text: str) -> bool | int | float:
    """Return a value of the type that the default of a setting has."""
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{text!r} must be true or false")
        return text.lower() == "true"
    if kind is float:
        return float(text)
    return parameters.size(text) if name.endswith("_bytes") else int(text)


def _settings(given: dict[str, Any]) -> Any:
    from braidlog.app.serve.process import ServeSettings
    from braidlog.serving.settings import SecuritySettings

    files = ("certificate", "key", "tokens")
    paths: dict[str, Any] = {name: str(given[name] or "") for name in files}
    security = SecuritySettings(**paths, insecure=given["insecure"])
    return ServeSettings(listen=given["listen"], http=given["http"], security=security)


@contextmanager
def opened(application: str | None, directory: Path) -> Iterator[Host]:
    """Open a directory for one command.

    Raises:
        Problem: A host has it, or nobody said of which application it is.
    """
    if application is None:
        raise Problem("--directory needs --app", "pass --app MODULE:APP", USAGE)
    try:
        host = load(application).open(directory)
    except LockedError as error:
        hint = "a host has it open: ask that host with --hosts ADDRESS"
        raise Problem(error.message, hint, LOCKED) from None
    with host:
        yield host


@contextmanager
def calling(session: Session, only: str | None = None) -> Iterator[Caller]:
    """Connect to the hosts, or to one of them ``only``."""
    from braidlog.app.caller.caller import connect
    from braidlog.client.connection.routing import parse_seeds

    target = session.cluster
    if target is None:
        text = "no hosts are named"
        raise Problem(text, "pass --hosts HOST:PORT, or set BRAIDLOG_HOSTS", USAGE)
    seeds, context = parse_seeds(only or target.seeds), target.context()
    probe(seeds, "host", _NOBODY)
    with connect(seeds, token=target.token, ssl=context) as caller:
        yield caller


class _CallCommand(HostsCommand):
    """A command whose arguments may be negative numbers."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Have numbers taken for what they are, and not for options."""
        # JSON allows the space, and no option begins with one.
        spaced = [f" {text}" if _NEGATIVE.fullmatch(text) else text for text in args]
        return super().parse_args(ctx, spaced)


@app.command(cls=_CallCommand)
@click.argument("procedure")
@click.argument("arguments", nargs=-1)
@click.option("--call-id", help="Id of an earlier attempt: the call is executed once.")
@click.option(
    "--timeout",
    type=parameters.seconds,
    default="30",
    show_default=True,
    help="Seconds to wait for the answer, including retries.",
)
@click.option(
    "--stale",
    type=parameters.seconds,
    help=("Allow a read-only procedure to see a state up to this many seconds old."),
)
@click.option(
    "--directory",
    type=parameters.DIRECTORY,
    help="Open this directory to make the call.",
)
@app_option
def call(
    session: Session,
    /,
    procedure: str,
    arguments: tuple[str, ...],
    call_id: str | None,
    timeout: float,
    stale: float | None,
    directory: Path | None,
    application: str | None,
) -> None:
    """Call a procedure and print its result as JSON.

    Each argument is JSON, or else text. If no answer came, repeat the call with the
    --call-id that the error names.
    """
    from braidlog.app import CallId, UnknownProcedureError

    values = [_value(text) for text in arguments]
    with ExitStack() as stack:
        caller: Any
        if directory is not None:
            caller = stack.enter_context(opened(application, directory))
        else:
            caller = stack.enter_context(calling(session))
        call = caller.new_call_id() if call_id is None else CallId.parse(call_id)
        try:
            result = caller.call(
                procedure, *values, call_id=call, timeout=timeout, stale=stale
            )
        except UnknownProcedureError as error:
            raise Problem(
                error.message, "call one of these procedures", NOT_FOUND
            ) from None
        except LogError as error:
            if error.outcome == "unknown":
                error.add_note(
                    f"repeat the call with --call-id {call.hex()}: it is executed once"
                )
            raise
    text = json.dumps(result, ensure_ascii=False, default=str)
    line(session, text, result=json.loads(text), call_id=call.hex())


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


@app.command(cls=HostsCommand)
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@interval_option
def status(session: Session, *, watch: bool, interval: float) -> None:
    """Show the hosts: which one is active, and how far each is behind."""
    with calling(session) as caller:
        if not watch:
            found, failed = _look(caller)
            rows(session, found, empty="none of the hosts answered", shown=_shown)
            for address, why in failed.items():
                message(f"{address}: {why}")
            if failed:
                hosts = "1 host" if len(failed) == 1 else f"{len(failed)} hosts"
                raise Problem(f"{hosts} did not answer", "", FAILURE)
            return
        if session.as_json or not sys.stdout.isatty():
            _watch_lines(session, caller, interval)
        _watch_live(caller, interval)


def _look(caller: Caller) -> tuple[list[dict[str, Any]], dict[str, str]]:
    from braidlog.app.serve.status import row

    found: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for address, said in caller.statuses().items():
        if isinstance(said, LogError):
            failed[address] = said.message
        else:
            found.append({"address": address, **row(said)})
    return found, failed


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    names = ("address", "application", "role", "ready", "applied", "lag", "waiting")
    more = ("calls", "epoch", "kept", "stopped", "snapshot", "level", "replay_seconds")
    return {name: row[name] for name in (*names, *more, "alarms", "why")}


def _watch_lines(session: Session, caller: Caller, interval: float) -> None:
    while True:
        rows(
            session, _look(caller)[0], empty="none of the hosts answered", shown=_shown
        )
        sys.stdout.flush()
        time.sleep(interval)


def _watch_live(caller: Caller, interval: float) -> None:
    before: dict[str, int] = {}
    with Live(Text("looking"), screen=True, auto_refresh=False) as live:
        while True:
            found, _ = _look(caller)
            for row in found:
                calls = row["calls"]
                if (then := before.get(row["host"])) is not None:
                    row["calls_per_second"] = max(0, calls - then) / interval
                before[row["host"]] = calls
            live.update(hosts_table(found), refresh=True)
            time.sleep(interval)


@app.command(cls=HostsCommand)
@host_option
def promote(session: Session, *, address: str | None) -> None:
    """Make a host the active one; the former one becomes a standby."""
    with calling(session) as caller:
        said = caller.promote(address)
    text = f"host {said.host.hex()[:8]} is active in epoch {said.epoch}"
    line(session, text, host=said.host.hex(), epoch=said.epoch, active=said.active)
