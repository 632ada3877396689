"""``braidlog top``: a cluster, live."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from braidlog.cli.cluster import health
from braidlog.cli.cluster.sample import Sample, Sampler, Statuses, status_urls
from braidlog.cli.command.commands import ClusterCommand, command
from braidlog.cli.command.failures import USAGE, Problem
from braidlog.cli.command.options import interval_option
from braidlog.cli.command.session import Session, stopped_by_signals
from braidlog.cli.terminal.fit import fitted
from braidlog.cli.terminal.output import facts
from braidlog.cli.terminal.text import clock, counted, human_bytes, printable
from braidlog.errors import UnavailableError

if TYPE_CHECKING:
    from braidlog.wire.messages import Metadata

    Metadatas: TypeAlias = Callable[[], Metadata | None]

_PATIENCE_S: Final = 3.0
"""How long a look may take; an election is over in less."""
_WIDTH_MAX: Final = 4096
_BLOCKS: Final = "·▁▂▃▄▅▆▇█"
_LEVELS: Final = {
    "open": ("below", "green"),
    "snapshot": ("soft: snapshot", "yellow"),
    "full": ("hard: refuses calls", "bold red"),
}
_COLORS: Final = {
    "ok": "green",
    "up": "green",
    "sealed": "yellow",
    "degraded": "yellow",
    "draining": "yellow",
    "readmitting": "yellow",
    "unavailable": "bold red",
    "down": "bold red",
}


@command(kind=ClusterCommand)
@click.option("--once", is_flag=True, help="Print one frame and stop.")
@interval_option
@click.option(
    "--status",
    "statuses",
    metavar="HOST:PORT[,...]",
    envvar="BRAIDLOG_STATUS",
    help=(
        "HTTP addresses of nodes, to show replica lag, connections and bytes; and of"
        " hosts of applications [env: BRAIDLOG_STATUS]."
    ),
)
def top(session: Session, *, once: bool, interval: float, statuses: str | None) -> None:
    """Watch a cluster: nodes, streams, hosts of applications, rates and lags.

    Ctrl-C ends it. The braid of a stream shows how much each refresh found committed,
    relative to its log, newest at the right. With --json, each refresh is one line.
    With --status and without --cluster, only hosts of applications are shown.
    """
    if not (once or session.as_json or _is_live()):
        text = "a live view needs a terminal that can move its cursor"
        raise Problem(text, "pass --once for one frame, or --json for lines", USAGE)
    asked = Statuses(status_urls(statuses))
    try:
        # The terminal gets its screen back also when the process is told to end.
        with ExitStack() as stack, stopped_by_signals():
            metadata: Metadatas = _nothing
            if session.cluster is not None or not statuses:
                if once:
                    metadata = partial(_judged, session)
                else:
                    # Whoever watches wants to see that nothing answers, not to wait.
                    client = stack.enter_context(session.client(timeout_s=_PATIENCE_S))
                    metadata = client.metadata
            looks = _looks(metadata, asked, interval, once=once)
            if session.as_json:
                _print_lines(session, looks)
            elif once:
                _print(looks)
            else:
                _show(looks)
    except KeyboardInterrupt:
        return


def _is_live() -> bool:
    return sys.stdout.isatty() and not Console().is_dumb_terminal


def _nothing() -> None:
    """Look at no cluster: hosts of applications alone are asked for."""


def _judged(session: Session) -> Metadata:
    """Return what the leader says, or raise what the nodes say without one."""
    look = session.look()
    if look.judged is not None:
        return look.judged
    raise LeaderlessError(health.leaderless(look))


class LeaderlessError(UnavailableError):
    """Nobody leads; `found` is what each node knows."""

    def __init__(self, found: dict[str, Any]) -> None:
        """Say why, as `braidlog cluster status` does."""
        super().__init__(found["why"][0]["why"])
        self.found = found


def _looks(
    metadata: Metadatas, statuses: Statuses, interval: float, *, once: bool
) -> Iterator[dict[str, Any]]:
    """Yield look after look; a rate needs two, so the first is not shown."""
    sampler, looked = Sampler(), False
    while True:
        try:
            rows = sampler.rows(_sample(metadata, statuses))
        except UnavailableError as error:
            # Nobody decides anything: what the nodes say of themselves is all there is.
            yield {"time": _now()} | _unavailable(error, *statuses.ask())
            if once:
                return
        else:
            if looked:
                yield {"time": _now(), **rows}
                if once:
                    return
            looked = True
        time.sleep(interval)


def _unavailable(
    error: UnavailableError,
    nodes: dict[int, dict[str, Any]],
    hosts: tuple[dict[str, Any], ...],
) -> dict[str, Any]:
    said = {
        node: {"node": node, "ready": status["ready"], "why": status["why"]}
        for node, status in nodes.items()
    }
    if isinstance(error, LeaderlessError):
        for row in error.found["nodes"]:
            answer = {"node": row["node"], "ready": False, "why": row["says"]}
            said.setdefault(row["node"], answer)
    return {
        "error": error.message,
        "health": "unavailable",
        "leader": None,
        "said": [row for _, row in sorted(said.items())],
        "hosts": list(hosts),
    }


def _now() -> int:
    return time.time_ns() // 1000


def _sample(metadata: Metadatas, statuses: Statuses) -> Sample:
    found = metadata()
    return Sample(time.monotonic(), found, *statuses.ask())


def _print_lines(session: Session, looks: Iterator[dict[str, Any]]) -> None:
    for look in looks:
        facts(session, look)
        sys.stdout.flush()


def _print(looks: Iterator[dict[str, Any]]) -> None:
    # Nothing is cut where the width is not that of a person's terminal.
    width = None if sys.stdout.isatty() else _WIDTH_MAX
    console = Console(highlight=False, width=width)
    with console.capture() as captured:
        for look in looks:
            console.print(frame(look))
    click.echo(captured.get(), nl=False)


def _show(looks: Iterator[dict[str, Any]]) -> None:
    shown: dict[str, Any] = {}
    with Live(Text("looking"), screen=True, auto_refresh=False) as live:
        for look in looks:
            shown = after(shown, look)
            live.update(fitted(shown, live.console, frame), refresh=True)


def after(shown: dict[str, Any], look: dict[str, Any]) -> dict[str, Any]:
    """Return what to show now: without an answer the last one, and of when it is."""
    if "error" not in look:
        return look
    return {"seen": shown.get("time")} | shown | look


def frame(look: dict[str, Any]) -> RenderableType:
    """Return one look for a terminal."""
    parts: list[RenderableType] = [_head(look)]
    if "error" in look:
        parts.append(Text(printable(look["error"]), "bold red"))
    parts += _whys(look.get("said", look.get("nodes", ())))
    if "nodes" in look:
        if look.get("seen"):
            parts.append(Text(f"as it was at {clock(look['seen'])[:19]}Z:", "yellow"))
        tables = {"nodes": _nodes, "logs": _logs, "streams": _streams}
        parts += [make(look) for name, make in tables.items() if _is_shown(look, name)]
    if look.get("hosts"):
        parts.append(hosts(look["hosts"]))
    left = look.get("left", {}).items()
    if counts := [counted(count, name[:-1]) for name, count in left if count]:
        parts.append(Text(f"not shown here: {', '.join(counts)}", "yellow"))
    return Group(*parts)


def _is_shown(look: dict[str, Any], name: str) -> bool:
    # Not the head alone of a table that had no room for a row.
    return bool(look[name]) or not look.get("left", {}).get(name)


def _whys(rows: Iterable[dict[str, Any]]) -> Iterator[Text]:
    """Say what nodes lack for serving."""
    for row in rows:
        if row.get("why"):
            yield Text(f"node {row['node']}: {printable(row['why'])}", "yellow")


def _head(look: dict[str, Any]) -> Text:
    if "health" not in look:
        return Text(f"{clock(look['time'])[:19]}Z")
    leader = f"node {look['leader']}" if look["leader"] else "none"
    head = Text()
    head.append(printable(look.get("cluster", "cluster")), "bold")
    head.append("  ")
    head.append(look["health"], _COLORS[look["health"]])
    head.append(f"  leader {leader}  {clock(look['time'])[:19]}Z")
    return head


def _nodes(look: dict[str, Any]) -> Table:
    table = _table("node", "address", "state", "votes", "primary of", "replicas")
    for name in ("connections", "appends/s", "stored"):
        table.add_column(name, justify="right")
    for row in look["nodes"]:
        votes = "leads" if row["leader"] else "yes" if row["voter"] else "no"
        stored = row["wal_bytes"]
        table.add_row(
            str(row["node"]),
            printable(row["address"]),
            _state(row["state"]),
            votes,
            str(row["primary_of"]),
            str(row["replicas"] + row["learners"]),
            _number(row["connections"]),
            _number(row["appends_per_second"]),
            "-" if stored is None else human_bytes(stored),
        )
    return table


def _logs(look: dict[str, Any]) -> Table:
    table = _table("log", "streams")
    for name in ("records", "records/s", "cuts/s"):
        table.add_column(name, justify="right")
    for row in look["logs"]:
        table.add_row(
            printable(row["log"]),
            str(row["streams"]),
            f"{row['records']:,}",
            _number(row["records_per_second"]),
            _number(row["cuts_per_second"]),
        )
    return table


def _streams(look: dict[str, Any]) -> Table:
    table = _table("stream", "log", "state", "epoch", "replicas")
    table.add_column("committed", justify="right")
    table.add_column("lag", justify="right")
    table.add_column("braid", no_wrap=True)
    most: dict[str, int] = {}
    for row in look["streams"]:
        most[row["log"]] = max([most.get(row["log"], 0), *row["braid"]])
    for row in look["streams"]:
        table.add_row(
            str(row["stream"]),
            printable(row["log"]),
            _state(row["state"]),
            str(row["epoch"]),
            _replicas(row),
            f"{row['committed']:,}",
            _lag(row["lag"]),
            _braid(row["braid"], most[row["log"]]),
        )
    return table


def hosts(rows: list[dict[str, Any]]) -> RenderableType:
    """Return hosts of applications for a terminal, and what is wrong with them."""
    table = _table("application", "host", "role", "state")
    for name in ("applied", "lag", "calls/s", "waiting", "snapshot", "since", "replay"):
        table.add_column(name, justify="right")
    table.add_column("marks")
    for row in rows:
        table.add_row(
            printable(row["application"]),
            row["host"][:8],
            row["role"],
            _state("ok" if row["ready"] else "degraded"),
            f"{row['applied']:,}",
            f"{row['lag']:,}",
            _number(row.get("calls_per_second")),
            f"{row['waiting']:,}",
            "-" if row["snapshot"] is None else f"{row['snapshot']:,}",
            human_bytes(row["bytes_since_snapshot"]),
            f"{row['replay_seconds']:,.1f} s",
            _marks(row["level"]),
        )
    return Group(table, *_alarms(rows))


def _marks(level: str | None) -> Text:
    """Say on which side of the marks the log is: whether calls are refused."""
    if level is None:
        return Text("-")
    return Text(*_LEVELS.get(level, (level, "")))


def _alarms(rows: list[dict[str, Any]]) -> Iterator[Text]:
    for row in rows:
        for alarm in filter(None, (row["why"], *row["alarms"])):
            yield Text(f"{row['host'][:8]}: {printable(alarm)}", "yellow")


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in names:
        table.add_column(name)
    return table


def _state(state: str) -> Text:
    return Text(state, _COLORS.get(state, ""))


def _replicas(row: dict[str, Any]) -> Text:
    """Name the nodes: the primary first, learners in brackets."""
    text = Text(str(row["primary"] or "-"), "bold")
    for node in row["replicas"][1:]:
        text.append(f" {node}", "not bold")
    for node in row["learners"]:
        text.append(f" ({node})", "not bold dim")
    return text


def _lag(lags: dict[str, int]) -> str:
    if not lags:
        return "-"
    node, lag = max(lags.items(), key=lambda pair: pair[1])
    return f"{lag:,} on {node}" if lag else "0"


def _braid(counts: list[int], most: int) -> str:
    if not most:
        return _BLOCKS[0] * len(counts)
    return "".join(_BLOCKS[-(-count * 8 // most)] for count in counts)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
