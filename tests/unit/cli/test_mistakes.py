"""What people get wrong: each mistake is one line and a hint, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

import braidlog
from braidlog.cli import main
from braidlog.errors import LogError
from unit.cli.conftest import Cli, ClusterCli

# Arguments, exit code, what the line says, what the hint says.
MISTAKES: Final[list[tuple[list[str], int, str, str]]] = [
    (
        ["read", "ordrs"],
        3,
        "'ordrs' does not exist; did you mean 'orders'?",
        "log list",
    ),
    (["read", "elsewhere"], 3, "does not exist (there are: 'orders')", "log create"),
    (["read", "orders", "0"], 2, "positions begin at 1", "read --help"),
    (["read", "orders", "99"], 6, "99", "log list"),
    (["read", "orders", "--begin", "99"], 6, "99", "--follow"),
    (["read", "orders", "5", "2"], 2, "takes LOG [POSITION]", "read --help"),
    (["read", "orders", "5", "--end", "9"], 2, "pass --begin and --end", "--help"),
    (["read", "orders", "--bgin", "3"], 2, "'--begin'", "read --help"),
    (["read", "orders", "five"], 2, "'five' is not a whole number", "read --help"),
    (["read", "orders", "--since", "noon"], 2, "'noon' is not a time", "--help"),
    (["raed", "orders"], 2, "Did you mean 'read'?", "--help"),
    (["tail", "orders", "--timeout", "1"], 2, "--timeout needs --follow", "--help"),
    (["tail", "orders", "-n", "-1"], 2, "-1", "--help"),
    (["append", "elsewhere", "x"], 3, "does not exist", "log create"),
    (["log", "create", ".."], 1, "'..' cannot be the name of a log", "1 to 255 bytes"),
    (["log", "create", "a/b"], 1, "cannot be the name of a log", "without '/'"),
    (["log", "create", "x" * 256], 1, "256 bytes, at most 255", "shorter"),
    (["log", "create", "orders"], 1, "already exists", "--exist-ok"),
    (["log", "create", "x", "--retention", "soon"], 2, "'soon' is not", "--help"),
    (["log", "create", "x", "--compression", "zip"], 2, "'zip'", "--help"),
    (["log", "create", "x", "--streams", "2"], 2, "--streams needs --cluster", ""),
    (["log", "delete", "orders"], 2, "not confirmed", "--yes"),
    (["log", "set", "orders"], 2, "pass a setting to change", "--help"),
    (["trim", "orders"], 2, "exactly one of", "trim --help"),
    (["trim", "orders", "--before", "5"], 2, "not confirmed", "--yes"),
    (["trim", "orders", "--before", "99", "--yes"], 6, "beyond the end", "--before 11"),
    (["cursor", "get", "orders", "none"], 3, "no cursor 'none'", "cursor list orders"),
    (["cursor", "set", "orders", "c", "99"], 6, "beyond the end", "11"),
    (["cursor", "set", "orders", "c", "1", "--lease", "1d"], 2, "needs --pin", ""),
    (["export", "orders", "out.xyz"], 2, "format cannot be told", "pass --format"),
    (["export", "orders", "none/out.csv"], 3, "does not exist", ""),
    (["import", "orders", "none.csv"], 2, "none.csv", "--help"),
    (["inspect", "frames", "77"], 3, "77", "inspect segments"),
    (["serve", "--check", "--config", "none.toml"], 2, "none.toml", "--help"),
    (["serve", "--check", "--config", "typo.toml"], 1, "did you mean 'listen'?", ""),
    (["serve", "--check", "--config", "type.toml"], 1, "id must be a number", ""),
    (["serve", "--check", "--config", "bad.toml"], 1, "bad.toml", ""),
    (["cluster", "status"], 2, "No such option '--data'", "--help"),
    (["node", "list"], 2, "No such option '--data'", "--help"),
    (["bench", "--seconds", "0"], 2, "0", "bench --help"),
]

OF_A_CLUSTER: Final[list[tuple[list[str], int, str, str]]] = [
    (["read", "ordrs"], 3, "did you mean 'orders'?", "log list"),
    (["log", "create", ".."], 1, "cannot be the name of a log", "1 to 255 bytes"),
    (["node", "drain", "9"], 3, "node 9 does not exist", "node list"),
    (["node", "remove", "1"], 1, "still has replicas", "node drain 1"),
    (["node", "readmit", "1"], 2, "discard everything in the old dir", "--yes"),
    (["node", "voter", "1", "--off"], 2, "(tolerates", "--yes"),
    (["stream", "seal", "99"], 3, "stream 99 does not exist", "stream list"),
    (["stream", "move", "1"], 2, "needs --from and --to", "--help"),
    (["verify"], 2, "works on a data directory", "verify --help"),
    (["stats", "orders"], 2, "works on a data directory", "stats --help"),
    (["cursor", "get", "orders", "none"], 3, "no cursor 'none'", "cursor list"),
]


def wrong(ran: Any, as_json: Any, case: tuple[list[str], int, str, str]) -> str:
    """Return what is not as it should be in the answer to a mistake."""
    arguments, code, line, hint = case
    lines = ran.stderr.splitlines()
    if ran.exit_code != code or as_json.exit_code != code:
        return f"{arguments}: exit code {ran.exit_code}, {as_json.exit_code}: {lines}"
    if ran.stdout or "Traceback" in ran.stderr:
        return f"{arguments}: {ran.stdout!r}, {ran.stderr!r}"
    kinds = [each.partition(": ")[0] for each in lines]
    if kinds[0] != "error" or set(kinds[1:]) - {"note", "hint"}:
        return f"{arguments}: not one line and hints: {lines}"
    said = json.loads(as_json.stderr)["error"]
    if [said["message"], said["exit_code"]] != [lines[0].removeprefix("error: "), code]:
        return f"{arguments}: JSON says {said}, the text {lines[0]}"
    if line not in said["message"] or hint not in said["hint"]:
        return f"{arguments}: {said['message']!r}, {said['hint']!r}"
    return ""


def test_mistakes_on_a_directory(orders: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    where = orders.data.parent
    monkeypatch.chdir(where)
    (where / "typo.toml").write_text("[node]\nlistn = 'x:1'\n")
    (where / "type.toml").write_text("[node]\nid = 'one'\n")
    (where / "bad.toml").write_text("[node\n")
    found = []
    for case in MISTAKES:
        ran = orders.mistake(*case[0])
        found.append(wrong(ran, orders.mistake(*case[0], "--json"), case))
    assert [each for each in found if each] == []
    assert orders.values("orders") == [f"v{i}" for i in range(1, 11)]


def test_mistakes_on_a_cluster(many: ClusterCli) -> None:
    many.run("log", "create", "orders")
    found = []
    for case in OF_A_CLUSTER:
        ran = many.mistake(*case[0])
        found.append(wrong(ran, many.mistake(*case[0], "--json"), case))
    assert [each for each in found if each] == []
    assert len(many.json("log", "list")) == 1


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["read", "orders", "--key"], "main read"),
        (["tail", "orders", "--timeout", "1"], "main tail"),
        (["log", "set", "orders", "--data"], "main log set"),
    ],
)
def test_the_hint_names_the_command(arguments: list[str], command: str) -> None:
    ran = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert ran.exit_code == 2
    assert ran.stderr.splitlines()[-1] == f"hint: {command} --help"


CALLS: Final[dict[str, tuple[Callable[[Any, Any], object], type[Exception], str]]] = {
    "no such log": (lambda s, log: s.log("ordrs"), LogError, "did you mean 'orders'?"),
    "a bad name": (lambda s, log: s.create_log(".."), LogError, "A name has 1 to 255"),
    "no name": (lambda s, log: s.create_log(5), TypeError, "must be a str"),
    "twice": (lambda s, log: s.create_log("orders"), LogError, "exist_ok=True"),
    "position 0": (lambda s, log: log.get(0), LogError, "Positions begin at 1"),
    "beyond": (lambda s, log: log.get(9), LogError, "`Log.wait`"),
    "trimmed": (lambda s, log: log.get(1), LogError, "first position"),
    "text": (lambda s, log: log.append("x"), TypeError, "must be bytes"),
    "one value": (lambda s, log: log.append_many(b"x"), TypeError, "must be a list"),
    "no cursor": (lambda s, log: log.set_cursor("c", 99), LogError, "from 1 to 4"),
    "nan": (
        lambda s, log: log.wait(9, timeout=float("nan")),
        LogError,
        "number of sec",
    ),
    "half": (lambda s, log: log.append(b"x", sequence=1), LogError, "producer"),
    "huge": (lambda s, log: log.append(bytes(17 << 20)), LogError, "Split it"),
    "step": (lambda s, log: log[::2], LogError, "must be 1 or -1"),
    "format": (lambda s, log: s.create_log("x", compression="zip"), LogError, "'zip'"),
}


def test_mistakes_in_python(tmp_path: Path) -> None:
    found = []
    with braidlog.open(tmp_path / "data") as store:
        log = store.create_log("orders")
        log.append_many([b"a", b"b", b"c"])
        log.trim(2)
        for name, (call, kind, words) in CALLS.items():
            try:
                call(store, log)
                found.append(f"{name}: nothing was raised")
            except kind as error:
                if words not in str(error) or "\n" in str(error):
                    found.append(f"{name}: {error}")
        assert [bytes(record.value) for record in log.read()] == [b"b", b"c"]
        assert store.logs() == ["orders"]
    assert found == []
