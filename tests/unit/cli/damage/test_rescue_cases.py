"""`braidlog rescue` on the worked cases of the rule, as a user meets them.

`A:1B`: the newest record of node 1 has sequence 1 and lists node 2; `*`: not viable.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from braidlog.faultlog import FaultRecord, scan
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.node.rescue.ring import FILE_NAME, read_ring
from braidlog.store.node_store import NodeStore
from unit.cli.conftest import Cli
from unit.faultlog.worlds import NAMES, record, records

Made = Callable[..., list[str]]

FOUR = (1, 2, 3, 4)
K1 = {1: [1, 3], 2: [2, 4]}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Make a directory for each node of a story, or for those that are `present`."""

    def make(story: str, present: str = NAMES, **how: object) -> list[str]:
        found = records(story, **how)  # type: ignore[arg-type]
        return [
            put(tmp_path / f"n{node}", each)
            for node, each in sorted(found.items())
            if NAMES[node - 1] in present
        ]

    return make


def put(path: Path, said: FaultRecord) -> str:
    path.mkdir(exist_ok=True)
    with FaultLog.open(path, said.cluster, said.node, slots=8) as log:
        log.record(said.configuration, viable=said.viable)
    return str(path)


def newest(path: str) -> FaultRecord:
    found = scan(read_ring(Path(path))).newest
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("story", "present", "valid"),
    [
        pytest.param("A,B,C:0", "ABC", [1, 2, 3], id="E1"),
        pytest.param("A,C:1B B:0", "ABC", [1, 3], id="E2"),
        pytest.param("A:1B B:3A C:3A", "ABC", [2, 3], id="E3"),
        pytest.param("A,C:1B B:0", "AC", [1, 3], id="E5"),
        pytest.param("A,C:1B B:1B*", "ABC", [1, 3], id="E6"),
        pytest.param("A,C:2 B:2*", "ABC", [1, 3], id="E7"),
        pytest.param("A:1B B,C:0", "ABC", [1, 3], id="E9"),
        pytest.param("A:3B* C:2AB", "C", [3], id="E10"),
        pytest.param("A:3B* C:e2.0AB", "AC", [3], id="E10 again"),
        pytest.param("A:5C B,C:e2.0A", "ABC", [2, 3], id="E11"),
    ],
)
def test_decided(
    cli: Cli, made: Made, story: str, present: str, valid: list[int]
) -> None:
    paths = made(story, present)
    [said] = cli.json("rescue", *paths)
    assert (said["verdict"], said["valid"]) == ("decided", valid)
    result = cli.run("rescue", *paths, "--write", "--yes")
    epoch = said["configuration"]["epoch"]
    names = ", ".join(map(str, valid))
    go = "goes" if len(valid) == 1 else "go"
    assert f"{names} {go} on, in epoch {epoch}" in result.stderr
    written = [newest(path) for path in paths]
    assert [each.node for each in written if each.number == (epoch, 0)] == valid
    assert all(each.configuration.live == tuple(valid) for each in written[-1:])


def test_e4_two_of_four_with_a_stream_each(
    cli: Cli, made: Made, tmp_path: Path
) -> None:
    streams = tmp_path / "streams.json"
    streams.write_text(json.dumps(K1))
    paths = made("A:1B B,C:4AD D:3A", "BC", members=FOUR)
    [said] = cli.json("rescue", *paths, "--streams", str(streams))
    assert said["valid"] == [2, 3]


def test_e8_the_wrong_order_is_what_nodes_must_not_do(cli: Cli, made: Made) -> None:
    # Nobody can see it in the records: the model shows that nodes never write this.
    [said] = cli.json("rescue", *made("A,C:2 B:0"))
    assert said["valid"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("story", "present", "missing", "why"),
    [
        pytest.param("A:1B B:3A C:3A", "AB", [3], "node 2 does not list it", id="E3b"),
        pytest.param("A:1B B,C:0", "BC", [1], "node 2 does not list it", id="E9b"),
        pytest.param("A,B,C:0", "C", [1, 2], "node 3 does not list it", id="two disks"),
    ],
)
def test_waits(
    cli: Cli, made: Made, story: str, present: str, missing: list[int], why: str
) -> None:
    paths = made(story, present)
    before = [newest(path) for path in paths]
    result = cli.run("rescue", *paths, "--write", "--yes", code=8)
    who = ", ".join(map(str, missing))
    assert f"wait for node{'s' if len(missing) > 1 else ''} {who}: " in result.stderr
    assert f"node {missing[0]} is absent, and {why}" in result.stderr
    assert "it may have gone on alone" in result.stderr
    [said] = cli.json("rescue", *paths, code=8)
    assert (said["verdict"], said["missing"]) == ("wait", missing)
    assert [newest(path) for path in paths] == before


def test_e12_two_sides_are_refused(cli: Cli, made: Made) -> None:
    paths = made("A:1B B:1A", members=(1, 2))
    for options in ((), ("--write", "--yes", "--accept-loss")):
        result = cli.run("rescue", *paths, *options, code=9)
        assert "refused: two configurations of epoch 1, sequence 1" in result.stderr
        assert "node 1 lists 2 as failed of 1, 2; node 2 lists 1" in result.stderr


def test_e13_a_node_that_was_removed_decides_nothing(
    cli: Cli, made: Made, tmp_path: Path
) -> None:
    paths = made("A,B,C:e2.0")
    old = put(tmp_path / "old", record(4, 9, (1,), members=FOUR))
    result = cli.run("rescue", *paths, old, "--write", "--yes")
    assert "nodes 1, 2, 3 go on, in epoch 3" in result.stderr
    assert result.stdout.splitlines()[-1].endswith("no member")
    assert newest(old).number == (1, 9)


def test_a_ring_that_cannot_be_read_is_as_good_as_none(cli: Cli, made: Made) -> None:
    paths = made("A,C:1B B:0")
    (Path(paths[2]) / FILE_NAME).write_bytes(b"\xff" * 32768)
    result = cli.run("rescue", *paths, "--write", "--yes", code=8)
    assert f"note: {paths[2]}: none of the records can be read" in result.stderr
    assert "wait for node 3: node 3 is absent" in result.stderr
    # What nobody needs may be damaged.
    shutil.copy(Path(paths[0]) / FILE_NAME, Path(paths[1]) / "aside")
    (Path(paths[1]) / FILE_NAME).write_bytes(b"\xff" * 32768)
    cli.run("rescue", *paths[:2], code=8)


def test_directories_of_two_clusters_are_refused(
    cli: Cli, made: Made, tmp_path: Path
) -> None:
    paths = made("A,C:1B B:0")
    foreign = put(tmp_path / "foreign", record(4, 9, members=FOUR, cluster="blue"))
    result = cli.run("rescue", *paths, foreign, "--write", "--yes", code=9)
    assert (
        "refused: the directories belong to several clusters: 'blue', 'green'"
        in result.stderr
    )
    assert newest(paths[0]).number == (1, 1)


def test_a_cloned_directory_is_refused(cli: Cli, made: Made, tmp_path: Path) -> None:
    paths = made("A,C:1B B:0")
    clone = shutil.copytree(paths[0], tmp_path / "clone")
    result = cli.run("rescue", *paths, str(clone), "--write", "--yes", code=9)
    assert (
        f"refused: two directories belong to node 1: {paths[0]} and {clone}"
        in result.stderr
    )
    assert newest(paths[0]).number == newest(str(clone)).number == (1, 1)


# --- nodes that are given up


def test_two_of_three_are_given_up(cli: Cli, made: Made) -> None:
    paths = made("A,B,C:0", "C")
    lost = ("--lost", "1", "--lost", "2")
    result = cli.run("rescue", *paths, *lost)
    assert "loss: nodes 1, 2 may have gone on alone after epoch 1, sequence 0" in (
        result.stderr
    )
    assert [row.split()[-1] for row in result.stdout.splitlines()[1:]] == [
        "valid",
        "lost",
        "lost",
    ]
    refused = cli.run("rescue", *paths, *lost, "--write", "--yes", code=2)
    assert "gives up nodes 1, 2" in refused.stderr
    assert newest(paths[0]).number == (1, 0)
    asked = cli.run("rescue", *paths, *lost, "--write", "--accept-loss", code=2)
    assert "give up nodes 1, 2 and everything that only they hold" in asked.stderr
    assert newest(paths[0]).number == (1, 0)
    [said] = cli.json("rescue", *paths, *lost, "--write", "--accept-loss", "--yes")
    assert (said["lost"], said["written"]) == ([1, 2], True)
    [again] = cli.json("rescue", *paths)
    assert again["losses"] == ["the rescue before, of epoch 2, gave up nodes 1, 2"]
    assert len(said["losses"]) == 1
    written = newest(paths[0])
    assert (written.number, written.lost) == ((2, 0), (1, 2))
    assert written.configuration.failed == (1, 2)


def test_all_that_are_absent_have_to_be_named(cli: Cli, made: Made) -> None:
    paths = made("A,B,C:0", "C")
    result = cli.run("rescue", *paths, "--lost", "1", code=8)
    assert "wait for node 2: " in result.stderr


def test_only_who_is_gone_can_be_given_up(cli: Cli, made: Made) -> None:
    paths = made("A,B,C:0", "BC")
    result = cli.run("rescue", *paths, "--lost", "2", code=2)
    assert "node 2 was named as lost, but its directory can be read" in result.stderr
    result = cli.run("rescue", *paths, "--lost", "1", "--lost", "7", code=2)
    assert "node 7 is not a member of the cluster 'green'" in result.stderr


def test_who_was_given_up_stays_so_when_it_is_repeated(cli: Cli, made: Made) -> None:
    paths = made("A,B,C:0", "BC")
    again = ("rescue", *paths, "--write", "--yes")
    cli.run(*again, "--lost", "1", "--accept-loss")
    # Only one of the two was written to.
    shutil.rmtree(paths[1])
    made("C:0")
    cli.run(*again)
    assert {(newest(path).number, newest(path).lost) for path in paths} == {
        ((3, 0), (1,))
    }


def test_a_stream_that_only_the_lost_had_is_named(
    cli: Cli, made: Made, tmp_path: Path
) -> None:
    paths, streams = made("A,B,C:0", "C"), tmp_path / "streams.json"
    lost = ("--lost", "1", "--lost", "2", "--streams", str(streams))
    streams.write_text('{"7": [1, 2], "8": [2, 3]}')
    result = cli.run("rescue", *paths, *lost)
    assert "loss: stream 7 has no valid replica" in result.stderr
    [said] = cli.json("rescue", *paths, *lost)
    assert said["lost_streams"] == [7]


def test_who_is_lost_comes_back_to_nothing(cli: Cli, made: Made) -> None:
    paths = made("A,B,C:0")
    cli.run(
        "rescue", paths[2], "--lost", "1", "--lost", "2", "--write", "--yes",
        "--accept-loss",
    )  # fmt: skip
    result = cli.run("rescue", *paths)
    rows = result.stdout.splitlines()[1:]
    assert [row.rpartition("  ")[2] for row in rows] == [
        "listed as failed",
        "listed as failed",
        "valid",
    ]


# --- wrong and damaged directories


def test_a_directory_that_is_named_twice_does_not_lock_itself_out(
    cli: Cli, made: Made, tmp_path: Path
) -> None:
    NodeStore(tmp_path / "n1", entropy=1, segment_bytes=64 << 10).close()
    paths = made("A,C:1B B:0", "AC")
    (tmp_path / "link").symlink_to(paths[0])
    twice = [*paths, str(tmp_path / "link")]
    result = cli.run("rescue", *twice, "--write", "--yes", code=9)
    assert (
        f"two directories belong to node 1: {paths[0]} and {twice[2]}" in result.stderr
    )
    assert newest(paths[0]).number == (1, 1)


def test_a_directory_around_that_of_the_data_is_told_apart(
    cli: Cli, made: Made, tmp_path: Path
) -> None:
    paths = made("A,C:1B B:0", "AC")
    result = cli.run("rescue", str(tmp_path), code=8)
    assert f"data directories are in it: {', '.join(paths)}" in result.stderr


def test_a_node_that_cannot_start_is_not_waited_for(
    cli: Cli, made: Made, tmp_path: Path
) -> None:
    """Written as valid, it would keep all the others waiting for ever."""
    NodeStore(tmp_path / "n1", entropy=1, segment_bytes=64 << 10).close()
    paths = made("A,B,C:0")
    (Path(paths[0]) / "CURRENT").write_text("junk")
    looked = cli.run("rescue", *paths)
    assert "its log cannot be read, and the node will not start" in looked.stderr
    assert "hint: pass an undamaged copy of the directory" in looked.stderr
    assert "--write makes it so" not in looked.stderr
    for options in ((), ("--json",)):
        result = cli.run("rescue", *paths, "--write", "--yes", *options, code=5)
        assert "node 1 would have to continue, but cannot start" in result.stderr
    assert [newest(path).number for path in paths] == [(1, 0)] * 3
    # As the hint says: without it, and given up.
    rest = ("rescue", *paths[1:], "--lost", "1")
    assert "loss: node 1 may have gone on alone" in cli.run(*rest).stderr
    cli.run(*rest, "--write", "--yes", "--accept-loss")
    assert [newest(path).number for path in paths] == [(1, 0), (2, 0), (2, 0)]
