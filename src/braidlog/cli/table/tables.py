"""``braidlog table``: the latest value of each key of a log."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import click

from braidlog.cli.command import parameters
from braidlog.cli.command.commands import EitherCommand, group_of
from braidlog.cli.command.failures import NOT_FOUND, Problem
from braidlog.cli.command.options import layout_options, yes_option
from braidlog.cli.command.session import Session
from braidlog.cli.table.damage import rebuild, repair, verify
from braidlog.cli.table.opening import opened
from braidlog.cli.terminal.output import facts, line, plain, rows
from braidlog.cli.terminal.progress import meter
from braidlog.cli.terminal.records import encoder
from braidlog.cli.terminal.text import clock, human_bytes
from braidlog.errors import AlreadyExistsError, NotFoundError

if TYPE_CHECKING:
    import braidlog
    from braidlog.client.tables.catalog import ClusterTableDescription


@click.group(cls=group_of(EitherCommand))
def table() -> None:
    """The latest value of each key of a log."""


@table.command()
@click.argument("name")
@click.option("--log", required=True, help="The log that the table follows.")
@click.option(
    "--index",
    "indexes",
    multiple=True,
    metavar="NAME=FIELD",
    help="An index, for instance city=json:/city or price=json:/price:float.",
)
@click.option(
    "--begin",
    type=parameters.POSITION,
    help="First position that counts [default: the first of the log].",
)
@click.option(
    "--history",
    type=parameters.COUNT,
    default=0,
    help="Positions behind the newest one that stay readable [default: 0].",
)
@click.option(
    "--memory", "memory_bytes", type=parameters.size, help="Memory [default: 64MiB]."
)
@click.option(
    "--deletes",
    default="null",
    show_default=True,
    help="Records that delete: null, empty, none, header:NAME or pattern:REGEX.",
)
@click.option(
    "--replicas",
    type=parameters.STREAMS,
    help="In a cluster: nodes that keep it [default: as many as keep a stream].",
)
@click.option("--exist-ok", is_flag=True, help="Accept an existing table as it is.")
def create(
    session: Session, name: str, *, indexes: tuple[str, ...], **options: Any
) -> None:
    """Create the table NAME of a log."""
    given = dict(_named(index) for index in indexes)
    if len(given) != len(indexes):
        raise click.UsageError("two indexes have the same name")
    if session.cluster is None and options.pop("replicas") is not None:
        raise click.UsageError("--replicas is for clusters only")
    with session.changing() as store:
        try:
            store.create_table(name, indexes=given, **options)
        except AlreadyExistsError as error:
            hint = "choose another name, or pass --exist-ok"
            raise Problem(error.message, hint) from None
    line(session, f"created {name}", table=name, log=options["log"], indexes=given)


def _named(index: str) -> tuple[str, str]:
    name, equals, field = index.partition("=")
    if not (name and equals and field):
        msg = f"--index must be NAME=FIELD, for instance city=json:/city, not {index!r}"
        raise click.UsageError(msg)
    return name, field


@table.command("list")
def list_(session: Session) -> None:
    """List the tables, and what is wrong with those that cannot be opened."""
    if session.cluster is not None:
        with session.client() as client:
            there = [client.table(name).describe() for name in client.tables()]
        rows(session, [_row(each) for each in there], empty="no tables", shown=_shown)
        return
    from braidlog.store import inspect as files

    with session.files():
        tables = files.state(session.data).tables
    problems = _problems(session) if tables else {}
    found = [
        {
            "table": each.name,
            "log": each.log,
            "indexes": [index.name for index in each.indexes],
            "created": each.created,
            "problem": problems.get(each.name),
        }
        for each in tables
    ]
    rows(session, found, empty="no tables", shown=_shown)


def _problems(session: Session) -> dict[str, str]:
    """Return what is wrong with the tables of the directory that cannot be opened."""
    from braidlog.store.tables.table import opening_problem

    found = {}
    with session.reader() as store:
        for name in store.tables():
            with contextlib.suppress(NotFoundError):  # Dropped meanwhile.
                problem = opening_problem(store.table(name))
                if problem is not None:
                    found[name] = problem
    return found


def _row(table: ClusterTableDescription) -> dict[str, Any]:
    return {
        "table": table.name,
        "log": table.log,
        "indexes": [index.name for index in table.indexes],
        "created": table.created,
        "hosts": [host.node for host in table.hosts],
        "lag": table.lag,
        "problem": next(filter(None, (host.failure for host in table.hosts)), None),
    }


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    indexes = ", ".join(row["indexes"]) or "-"
    created, problem = clock(row["created"]), row["problem"] or "-"
    return row | {"indexes": indexes, "created": created, "problem": problem}


@table.command()
@click.argument("name")
def describe(session: Session, name: str) -> None:
    """Show settings and figures of the table NAME."""
    with opened(session, name) as found:
        seen = plain(found.describe()) | plain(found.stats())
    facts(session, seen, _described)


def _described(seen: dict[str, Any]) -> dict[str, Any]:
    shown = {
        key: human_bytes(value) if "bytes" in key and value is not None else value
        for key, value in seen.items()
    }
    shown["created"] = clock(seen["created"])
    shown["indexes"] = {
        index["name"]: f"{index['field']} ({index['state']}"
        + (f", {index['missing']} records missing)" if index["missing"] else ")")
        for index in seen["indexes"]
    }
    if "hosts" in seen:
        shown["hosts"] = {f"node {each['node']}": _host(each) for each in seen["hosts"]}
    return shown


def _host(host: dict[str, Any]) -> str:
    if host["failure"]:
        return str(host["failure"])
    joined = "" if host["joined"] else ", has not all of it yet"
    return f"applied {host['applied']}, lag {host['lag']}{joined}"


def _print(
    session: Session,
    records: Iterable[braidlog.Record],
    layout: str,
    binary: Any,
    delimiter: bytes,
) -> None:
    encode = encoder(
        "json" if session.as_json else layout, binary=binary, delimiter=delimiter
    )
    for record in records:
        sys.stdout.buffer.write(encode(record))


@table.command()
@click.argument("name")
@click.argument("key")
@layout_options
def get(
    session: Session, name: str, key: str, *, layout: str, binary: Any, delimiter: bytes
) -> None:
    """Print the record that has the value of KEY in the table NAME."""
    with opened(session, name) as found:
        record = found.get(key.encode())
        if record is None:
            hint = f"`braidlog table scan {name}` prints the keys that there are"
            raise Problem(f"table {name!r} has no key {key!r}", hint, NOT_FOUND)
        _print(session, [record], layout, binary, delimiter)


@table.command()
@click.argument("name")
@click.option("--begin", help="First key.")
@click.option("--end", help="Stop before this key.")
@click.option("--prefix", help="Only keys that begin with this.")
@click.option("--index", help="In the order of this index; bounds are then its values.")
@click.option("--at", type=parameters.POSITION, help="As of this position of the log.")
@click.option("--limit", type=parameters.COUNT, help="Print at most this many records.")
@click.option("--reverse", "-r", is_flag=True, help="Last key first.")
@layout_options
def scan(
    session: Session,
    /,
    name: str,
    *,
    begin: str | None,
    end: str | None,
    prefix: str | None,
    index: str | None,
    at: int | None,
    limit: int | None,
    reverse: bool,
    layout: str,
    binary: Any,
    delimiter: bytes,
) -> None:
    """Print the records of the table NAME in the order of their keys."""
    if index is not None and prefix is not None:
        raise click.UsageError("--prefix cannot be used with --index")
    _require_room(begin, end, by_value=index is not None)
    with opened(session, name) as found, found.at(at) as snapshot:
        records: Iterator[braidlog.Record]
        if index is not None:
            by = snapshot.index(index)
            low, high = _value(begin), _value(end)
            records = by.scan(low, high, reverse=reverse, limit=limit)
        else:
            records = snapshot.scan(
                _key(begin),
                _key(end),
                prefix=_key(prefix),
                reverse=reverse,
                limit=limit,
            )
        _print(session, records, layout, binary, delimiter)


def _require_room(begin: str | None, end: str | None, *, by_value: bool) -> None:
    """Refuse bounds between which nothing can lie: they were meant in another order."""
    if begin is None or end is None:
        return
    low, high = (_value(begin), _value(end)) if by_value else (begin, end)
    # Values of different types have an order too, but not here.
    if type(low) is type(high) and low >= high:
        raise click.UsageError(
            f"nothing lies from --begin {begin!r} to before --end {end!r}: give the "
            "smaller one as --begin, with --reverse too"
        )


def _key(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _value(text: str | None) -> Any:
    """Return a bound of an index: a number or a truth value if it looks like one."""
    if text in ("true", "false"):
        return text == "true"
    if text is None:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@table.command()
@click.argument("name")
@click.argument("file", type=parameters.LocalPath(dir_okay=False))
@click.option("--at", type=parameters.POSITION, help="As of this position of the log.")
def export(session: Session, name: str, file: Any, *, at: int | None) -> None:
    """Write the table NAME to FILE, a Parquet file."""
    from pyarrow import parquet

    written = 0
    with opened(session, name) as found, found.at(at) as snapshot:
        with (
            meter("exporting", None, unit="records") as progress,
            parquet.ParquetWriter(file, snapshot.schema) as out,
        ):
            for batch in snapshot.batches():
                out.write_batch(batch)
                written += batch.num_rows
                progress.at(written)
        position = snapshot.position
    line(
        session,
        f"wrote {written} records to {file}",
        table=name,
        file=str(file),
        records=written,
        position=position,
    )


@table.command()
@click.argument("name")
@yes_option
def drop(session: Session, name: str, *, yes: bool) -> None:
    """Drop the table NAME; its log stays."""
    with opened(session, name, write=True) as found:
        session.confirm(f"drop table {name!r}; log {found.log!r} stays", yes=yes)
        with found.ddl() as change:
            change.drop(name)
    line(session, f"dropped {name}", table=name)


@table.command()
@click.argument("name")
@click.argument("to")
def rename(session: Session, name: str, to: str) -> None:
    """Give the table NAME the name TO."""
    with opened(session, name, write=True) as found, found.ddl() as change:
        change.rename(name, to)
    line(session, f"renamed {name} to {to}", table=to)


for other in (verify, repair, rebuild):
    table.add_command(other)
