"""``braidlog log``: create, list, describe and delete logs."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import click

from braidlog.cli.command import parameters
from braidlog.cli.command.commands import EitherCommand, group_of
from braidlog.cli.command.failures import Problem
from braidlog.cli.command.options import yes_option
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import facts, line, message, plain, rows
from braidlog.cli.terminal.text import clock, counted, human_bytes, human_duration
from braidlog.errors import AlreadyExistsError, CorruptionError, DeadlineError

if TYPE_CHECKING:
    from braidlog.cli.command.session import Log, Logs

# The longest time that `describe` waits for a record: who asks for the state of a log
# may ask because its replicas are gone.
_FIRST_RECORD_S: Final = 3.0


@click.group(cls=group_of(EitherCommand))
def log() -> None:
    """Create, list, describe, change, delete logs."""


@log.command()
@click.argument("name")
@click.option(
    "--exist-ok", is_flag=True, help="Accept an existing log and leave it unchanged."
)
@click.option(
    "--compression",
    type=click.Choice(["none", "zstd", "lz4"]),
    help="How record batches are stored.",
)
@click.option(
    "--retention",
    "retention_ms",
    type=parameters.retention,
    help="Trim records older than this, for instance 7d.",
)
@click.option(
    "--retention-bytes",
    type=parameters.retention_bytes,
    help="Trim the oldest records beyond this size, for instance 10GiB.",
)
@click.option(
    "--kind",
    type=click.Choice(["streams", "shard"]),
    help=(
        "In a cluster: streams that all replicas acknowledge, or one shard that a "
        "majority acknowledges and one writer may own [default: streams]."
    ),
)
@click.option(
    "--streams",
    type=parameters.STREAMS,
    help="In a cluster: number of streams [default: 1].",
)
@click.option(
    "--replication",
    type=parameters.STREAMS,
    help=(
        "In a cluster: replicas of each stream [default: 3, or one per node if fewer]."
    ),
)
@click.option(
    "--min-replicas",
    type=parameters.STREAMS,
    help=(
        "In a cluster: replicas that a stream needs for appends [default: a majority]."
    ),
)
@click.option(
    "--allow-missing",
    is_flag=True,
    help=(
        "In a cluster: create the log even if there are fewer nodes than --replication."
    ),
)
def create(session: Session, /, name: str, *, exist_ok: bool, **settings: Any) -> None:
    """Create the log NAME, and the data directory if it does not exist."""
    # 0 is "none", which is the default, and false is no flag.
    given = {key: value for key, value in settings.items() if value}
    if session.cluster is None:
        only_there = "kind", "streams", "replication", "min_replicas", "allow_missing"
        for only in only_there:
            if only in given:
                option = only.replace("_", "-")
                raise click.UsageError(f"--{option} needs --cluster")
    with session.changing(create=True) as store:
        try:
            store.create_log(name, **given)
        except AlreadyExistsError as error:
            if not exist_ok:
                hint = "choose another name, or pass --exist-ok"
                raise Problem(error.message, hint) from None
            # It stays as it is, and what it is not must not be said of it.
            kept = _as_it_is(store, name, given)
            line(session, f"log {name!r} exists already", log=name, **kept)
            _say_what_differs(given, kept)
        else:
            line(session, f"created {name}", log=name, **given)
            if session.cluster is not None:
                _say_what_is_missing(store, name)


def _as_it_is(store: Logs, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that were given as the log has them."""
    described = plain(store.log(name).describe())
    kept = {key: described[key] for key in given if key in described}
    if "streams" in kept:
        kept["streams"] = len(kept["streams"])
    return kept


def _say_what_differs(given: dict[str, Any], kept: dict[str, Any]) -> None:
    for key, value in kept.items():
        if value != given[key]:
            option = key.removesuffix("_ms").replace("_", "-")
            message(f"note: the log exists already, so --{option} changed nothing")


def _say_what_is_missing(store: Logs, name: str) -> None:
    """Say what the log lacks on the nodes that it was placed on."""
    log = plain(store.log(name).describe())
    wanted = log["replication"] * len(log["streams"])
    placed = sum(len(each["replicas"]) for each in log["streams"])
    if placed < wanted:
        missing = counted(wanted - placed, "replica")
        message(f"note: {missing} of {wanted} missing until more nodes are up")


@log.command("list")
def list_(session: Session) -> None:
    """List the logs with their ranges."""
    with session.logs() as store:
        rows(session, [_range(store, name) for name in store.logs()], empty="no logs")


@log.command()
@click.argument("name")
def describe(session: Session, name: str) -> None:
    """Show settings and state of the log NAME."""
    with session.logs() as store:
        log = store.log(name)
        described = plain(log.describe())
        described["first_timestamp"] = _first_timestamp(session, log)
    shown = _shown if session.cluster is None else _shown_in_cluster
    facts(session, {"log": described.pop("name"), **described}, shown)


def _first_timestamp(session: Session, log: Log) -> int | None:
    """Return the timestamp of the first record, or say why it cannot be read."""
    wait: dict[str, Any] = (
        {} if session.cluster is None else {"timeout": _FIRST_RECORD_S}
    )
    try:
        return log.first_timestamp(**wait)
    except (CorruptionError, DeadlineError) as error:
        message(f"note: the first timestamp is unknown: {error.message}")
        return None


@log.command("set")
@click.argument("name")
@click.option(
    "--retention",
    "retention_ms",
    type=parameters.retention,
    help=("Trim records older than this, for instance 7d; none turns it off."),
)
@click.option(
    "--retention-bytes",
    type=parameters.retention_bytes,
    help=(
        "Trim the oldest records beyond this size, for instance "
        "10GiB; none turns it off."
    ),
)
@click.option(
    "--streams",
    type=parameters.STREAMS,
    help="In a cluster: streams over which records are spread.",
)
@click.option(
    "--replication",
    type=parameters.STREAMS,
    help="In a cluster: replicas of each stream.",
)
@click.option(
    "--min-replicas",
    type=parameters.STREAMS,
    help="In a cluster: replicas that a stream needs for appends.",
)
@click.option(
    "--allow-missing",
    is_flag=True,
    help=("In a cluster: even if there are fewer nodes than --replication."),
)
@click.option(
    "--compression",
    type=click.Choice(["none", "zstd", "lz4"]),
    help="In a cluster: how new record batches are stored.",
)
@click.option("--name", "new_name", help="In a cluster: the new name of the log.")
@click.option(
    "--expect",
    type=click.IntRange(min=0),
    help=(
        "In a cluster: only if the settings are of this revision, which "
        "`log describe` shows."
    ),
)
def set_(
    session: Session,
    /,
    name: str,
    *,
    expect: int | None,
    allow_missing: bool,
    retention_ms: int | None,
    retention_bytes: int | None,
    new_name: str | None,
    **placed: Any,
) -> None:
    """Change settings of the log NAME; others stay unchanged."""
    retention = {"retention_ms": retention_ms, "retention_bytes": retention_bytes}
    given = {
        key: value or None for key, value in retention.items() if value is not None
    }
    placed = {key: value for key, value in placed.items() if value is not None}
    if new_name is not None:
        placed["name"] = new_name
    if not given and not placed:
        raise click.UsageError("pass a setting to change; --help lists them")
    if session.cluster is None:
        for only in (*placed, *(["expect"] if expect is not None else [])):
            raise click.UsageError(f"--{only.replace('_', '-')} needs --cluster")
    with session.changing() as store:
        target: Any = store.log(name)
        if session.cluster is None:
            # Both are replaced at once.
            kept = {key: getattr(target.options, key) for key in retention}
            target.set_options(**kept | given)
            line(session, f"changed {name}", log=name, **given)
            return
        before = target.describe()
        for each in _what_it_does(before, placed | given):
            message(each)
        began = monotonic()
        streams = placed.pop("streams", None)
        if placed or given:
            expect_next = target.alter(
                **placed, **given, allow_missing=allow_missing, expect=expect
            )
            expect = None if expect is None else expect_next
        if streams is not None:
            target.set_streams(streams, expect=expect)
            placed["streams"] = streams
        took = monotonic() - began
        after = target.describe()
    line(
        session,
        f"changed {name} in {took * 1000:.0f} ms; its settings are of revision "
        f"{after.revision} now",
        log=name,
        **({} if new_name is None else {"new_name": placed.pop("name")}),
        **placed,
        **given,
        revision=after.revision,
        took_ms=round(took * 1000),
    )


def _what_it_does(log: Any, changes: dict[str, Any]) -> Iterator[str]:
    """Yield what changes of settings will do, as far as it is not in their names."""
    if (streams := changes.get("streams")) is not None:
        yield from _what_streams_do(log, streams)
    if (replication := changes.get("replication")) is not None:
        more = (replication - log.replication) * len(log.streams)
        if more:
            what = "copied" if more > 0 else "dropped"
            yield f"{counted(abs(more), 'replica')} will be {what}"
    if changes.get("compression") not in (None, log.compression):
        yield "stored batches stay as they are; new ones are stored in the new way"
    if "retention_ms" in changes or "retention_bytes" in changes:
        yield "records that are beyond the new retention go within seconds"
    if changes.get("name") not in (None, log.name):
        yield f"programs that open {log.name!r} by its name have to use the new one"


def _what_streams_do(log: Any, streams: int) -> Iterator[str]:
    known = len(log.key_streams)
    if streams > known:
        yield (
            f"{known} to {counted(streams, 'stream')}: most keys move; positions, "
            "and the order of each key, stay"
        )
    elif streams < known:
        yield (
            f"{known} to {counted(streams, 'stream')}: the last ones take no keys any "
            "more, and are read until they are trimmed"
        )


@log.command()
@click.argument("name")
@yes_option
def delete(session: Session, name: str, *, yes: bool) -> None:
    """Delete the log NAME with all of its records."""
    with session.changing() as store:
        records = _range(store, name)["records"]
        session.confirm(f"delete {name} with {counted(records, 'record')}", yes=yes)
        store.delete_log(name)
    line(session, f"deleted {name}", log=name, records=records)


def _shown(log: dict[str, Any]) -> dict[str, Any]:
    stored = f"{human_bytes(log['bytes'])} in {counted(log['segments'], 'segment')}"
    return {
        **_begin(log),
        "stored": stored,
        "compression": log["compression"],
        "retention": _retention(log),
        "cursors": log["cursors"],
        "id": log["id"],
        "stream": log["stream"],
    }


def _shown_in_cluster(log: dict[str, Any]) -> dict[str, Any]:
    streams = {
        f"stream {each['stream']}": _stream(each) + _role(log, each["stream"])
        for each in log["streams"]
    }
    return {
        **_begin(log),
        **({"kind": "shard"} if log["kind"] == "shard" else {}),
        "replication": _replication(log),
        "compression": log["compression"],
        "retention": _retention(log),
        "id": log["id"],
        "revision": log["revision"],
        **streams,
    }


def _replication(log: dict[str, Any]) -> str:
    wanted = f"{log['replication']}, at least {log['min_replicas']}"
    if not (missing := log["replicas_missing"]):
        return wanted
    return f"{wanted}; {counted(missing, 'replica')} missing"


def _begin(log: dict[str, Any]) -> dict[str, Any]:
    first, end, begins = log["first"], log["end"], log["first_timestamp"]
    positions = f"{first} to {end - 1}" if first < end else "none"
    return {
        "log": log["log"],
        "created": clock(log["created"]),
        "records": log["records"],
        "positions": f"{positions}, the next is {end}",
        "first timestamp": None if begins is None else clock(begins),
    }


def _retention(log: dict[str, Any]) -> str:
    kept = []
    if log["retention_ms"] is not None:
        kept.append(human_duration(log["retention_ms"]))
    if log["retention_bytes"] is not None:
        kept.append(human_bytes(log["retention_bytes"]))
    return ", ".join(kept) or "until trimmed"


def _stream(stream: dict[str, Any]) -> str:
    nodes = ", ".join(map(str, stream["replicas"]))
    learners = ", ".join(map(str, stream["learners"]))
    copied = f", copied to {learners}" if learners else ""
    return f"{stream['status']} in epoch {stream['epoch']} on {nodes}{copied}"


def _role(log: dict[str, Any], stream: int) -> str:
    if stream in log["removed"]:
        return ", removed: it goes when its last record is trimmed"
    if stream not in log["key_streams"]:
        return ", only for producers of programs"
    return ""


def _range(store: Logs, name: str) -> dict[str, Any]:
    log = store.log(name)
    first, end = log.first, log.end
    return {"log": name, "first": first, "end": end, "records": end - first}
