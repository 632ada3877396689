"""`braidlog rescue`: what it decides, shows, writes and refuses."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import braidlog
from braidlog.faultlog import scan
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.node.rescue.ring import read_ring
from unit.cli.conftest import Cli
from unit.faultlog.worlds import records

Nodes = Callable[[str], list[str]]


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    """Make the directories of nodes that recorded a story; see `worlds.records`."""

    def made(story: str) -> list[str]:
        paths = []
        for node, record in sorted(records(story).items()):
            path = tmp_path / f"n{node}"
            path.mkdir(exist_ok=True)
            with FaultLog.open(path, "green", node, slots=8) as log:
                log.record(record.configuration, viable=record.viable)
            paths.append(str(path))
        return paths

    return made


def newest(path: str) -> tuple[int, int, tuple[int, ...]]:
    record = scan(read_ring(Path(path))).newest
    assert record is not None
    return (*record.number, record.configuration.failed)


def test_it_shows_what_it_decides_and_changes_nothing(cli: Cli, nodes: Nodes) -> None:
    paths = nodes("A:1B B:3A C:3A")
    before = [(Path(path) / "FAULTS").read_bytes() for path in paths]
    result = cli.run("rescue", *paths)
    table = [line.split() for line in result.stdout.splitlines()]
    assert " ".join(table[0]) == "node directory epoch sequence failed viable state"
    assert [(row[0], row[3], row[6:]) for row in table[1:]] == [
        ("1", "1", ["listed", "as", "failed"]),
        ("2", "3", ["valid"]),
        ("3", "3", ["valid"]),
    ]
    assert "node 2 of 'green' has the newest record: epoch 1, sequence 3" in (
        result.stderr
    )
    assert "decided: nodes 2, 3 go on, in epoch 2" in result.stderr
    assert "streams were not checked" in result.stderr
    assert [(Path(path) / "FAULTS").read_bytes() for path in paths] == before


def test_json(cli: Cli, nodes: Nodes) -> None:
    paths = nodes("A:1B B:3A C:3A*")
    [said] = cli.json("rescue", *paths)
    assert (said["verdict"], said["authority"], said["valid"]) == ("decided", 2, [2])
    assert said["configuration"] == {
        "epoch": 2,
        "sequence": 0,
        "members": [1, 2, 3],
        "failed": [1, 3],
    }
    assert said["nodes"][2] == {
        "node": 3,
        "directory": paths[2],
        "epoch": 1,
        "sequence": 3,
        "failed": [1],
        "viable": False,
        "state": "not viable",
    }
    assert (said["written"], said["why"], said["lost"]) == (False, [], [])
    assert {note["problem"] for note in said["notes"]} == {"it has only a fault log"}
    assert said["repository"] is None


def test_it_waits_for_who_may_know_more(cli: Cli, nodes: Nodes) -> None:
    paths = nodes("A:1B B:3A C:3A")
    result = cli.run("rescue", *paths[:2], "--write", "--yes", code=8)
    assert "wait for node 3: node 3 is absent, and node 2 does not list it" in (
        result.stderr
    )
    assert result.stdout.splitlines()[-1].split()[-1] == "missing"
    [said] = cli.json("rescue", *paths[:2], code=8)
    assert (said["verdict"], said["missing"]) == ("wait", [3])
    assert newest(paths[1]) == (1, 3, (1,))


def test_it_refuses_two_sides(cli: Cli, nodes: Nodes) -> None:
    paths = nodes("A:1BC B:1AC")
    result = cli.run("rescue", *paths, "--write", "--yes", code=9)
    assert "refused: two configurations of epoch 1, sequence 1" in result.stderr
    [said] = cli.json("rescue", *paths, code=9)
    assert (said["verdict"], said["named"]) == ("refused", [1, 2])
    assert newest(paths[0]) == (1, 1, (2, 3))


def test_it_refuses_two_directories_of_one_node(
    cli: Cli, nodes: Nodes, tmp_path: Path
) -> None:
    paths = nodes("A,C:1B")
    copy = shutil.copytree(paths[0], tmp_path / "copy")
    result = cli.run("rescue", *paths, str(copy), code=9)
    assert f"two directories belong to node 1: {paths[0]} and {copy}" in result.stderr


def test_streams_without_a_valid_replica_are_refused(
    cli: Cli, nodes: Nodes, tmp_path: Path
) -> None:
    paths, file = nodes("A,C:1B B:0"), tmp_path / "streams.json"
    file.write_text(json.dumps({"1": [1, 2], "2": [2]}))
    result = cli.run("rescue", *paths, "--streams", str(file), code=9)
    assert "stream 2 has no valid replica; its last replicas are 2" in result.stderr
    file.write_text(json.dumps({"1": [1, 2], "2": [2, 3]}))
    result = cli.run("rescue", *paths, "--streams", str(file))
    assert "streams were not checked" not in result.stderr


@pytest.mark.parametrize(
    "text", ["", "[]", '{"a":[1]}', '{"1":2}', '{"1":["x"]}', '{"1":[true]}', "\xff"]
)
def test_streams_that_are_none_are_wrong_usage(
    cli: Cli, nodes: Nodes, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "streams.json"
    file.write_bytes(text.encode("latin-1"))
    result = cli.run("rescue", *nodes("A:1BC"), "--streams", str(file), code=2)
    assert "does not map streams to lists of nodes" in result.stderr


def test_it_writes_the_new_epoch_to_the_valid_nodes(cli: Cli, nodes: Nodes) -> None:
    paths = nodes("A:1B B:3A C:3A")
    result = cli.run("rescue", *paths, "--write", "--yes")
    assert "epoch 2 is written to nodes 2, 3" in result.stderr
    assert [newest(path) for path in paths] == [
        (1, 1, (2,)),
        (2, 0, (1,)),
        (2, 0, (1,)),
    ]
    [again] = cli.json("rescue", *paths, "--write", "--yes")
    assert again["configuration"]["epoch"] == 3
    assert again["written"] is True


def test_it_asks_before_it_writes(cli: Cli, nodes: Nodes) -> None:
    paths = nodes("A:1BC")
    result = cli.run("rescue", *paths, "--write", code=2)
    assert "this would write epoch 2 to node 1" in result.stderr
    assert newest(paths[0]) == (1, 1, (2, 3))


def test_it_writes_nothing_while_a_node_runs(cli: Cli, nodes: Nodes) -> None:
    paths = nodes("A,C:1B B:0")
    shutil.move(Path(paths[1]) / "FAULTS", Path(paths[1]).parent / "aside")
    with braidlog.open(Path(paths[1])):
        shutil.move(Path(paths[1]).parent / "aside", Path(paths[1]) / "FAULTS")
        result = cli.run("rescue", *paths, "--write", "--yes", code=4)
        assert f"{paths[1]}/LOCK is locked" in result.stderr
        assert newest(paths[0]) == (1, 1, (2,))
        cli.run("rescue", *paths)
    cli.run("rescue", *paths, "--write", "--yes")


def test_a_write_that_stops_half_way_can_be_repeated(
    cli: Cli, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from braidlog.node.rescue import ring

    paths, written = nodes("A,B,C:0"), [0]
    write = ring.RingFile.write

    def some(self: ring.RingFile, offset: int, data: bytes) -> None:
        written[0] += 1
        if written[0] > 2:
            raise OSError(5, "Input/output error")
        write(self, offset, data)

    with monkeypatch.context() as patched:
        patched.setattr(ring.RingFile, "write", some)
        result = cli.run("rescue", *paths, "--write", "--yes", code=1)
    assert "written to node 1; run the same command again" in result.stderr
    assert newest(paths[0]) == (2, 0, ())
    cli.run("rescue", *paths[1:], code=8)
    [said] = cli.json("rescue", *paths, "--write", "--yes")
    assert said["valid"] == [1, 2, 3]
    assert {newest(path) for path in paths} == {(3, 0, ())}


def test_directories_that_cannot_be_read_are_absent(
    cli: Cli, nodes: Nodes, tmp_path: Path
) -> None:
    paths = nodes("A,C:1B B:0")
    empty = tmp_path / "empty"
    FaultLog.open(_made(empty), "green", 9).close()
    (tmp_path / "n3" / "FAULTS").write_bytes(b"\xff" * 32768)
    (tmp_path / "n2" / "FAULTS").unlink()
    result = cli.run("rescue", *paths, str(empty), code=8)
    assert "wait for node 3" in result.stderr
    assert "none of the records can be read" in result.stderr
    assert "its fault log is empty" in result.stderr
    assert result.stdout.count("unreadable") == 3
    cli.run("rescue", str(empty), code=8)
    cli.run("rescue", str(tmp_path / "nowhere"), code=2)


def test_without_directories_it_takes_the_one_of_data(cli: Cli) -> None:
    [record] = records("A:1BC").values()
    with FaultLog.open(_made(cli.data), "green", 1) as log:
        log.record(record.configuration, viable=True)
    [said] = cli.json("rescue")
    assert said["valid"] == [1]


def test_a_torn_record_is_said(cli: Cli, nodes: Nodes) -> None:
    paths = nodes("A:1BC")
    file = Path(paths[0]) / "FAULTS"
    data = bytearray(file.read_bytes())
    data[4096:4200] = b"\x01" * 104
    file.write_bytes(data)
    result = cli.run("rescue", *paths)
    assert "was torn while it was written and never took effect" in result.stderr
    [said] = cli.json("rescue", *paths)
    assert said["notes"][0]["directory"] == paths[0]


def _made(path: Path) -> Path:
    path.mkdir()
    return path
