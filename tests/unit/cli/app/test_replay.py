"""``braidlog app replay`` and ``braidlog app verify``."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from braidlog.app import SnapshotSettings
from braidlog.app.execution.entries import Outcomes
from braidlog.app.log.source import EmbeddedLog
from unit.app.banking import make_bank
from unit.app.logs import history
from unit.app.records import Records
from unit.cli.conftest import Cli
from unit.sources.test_dead import flip, nodes

BANK = "unit.cli.app.test_replay:bank"
bank = make_bank(row_keys={"account": "id"})


@pytest.fixture
def hosted(tmp_path: Path) -> Cli:
    with bank.open(tmp_path / "bank") as host:
        for account in range(20):
            host.call("deposit", account, 100)
        for account in range(1, 20):
            host.call("transfer", account, account - 1, 5)
    return Cli(tmp_path / "bank")


def test_replay_says_what_it_did(hosted: Cli, tmp_path: Path) -> None:
    state = str(tmp_path / "again")
    [done] = hosted.json("app", "replay", BANK, state)
    assert done["commands"] == 39
    assert sorted(done["hashes"]) == ["0", "1", "2"]
    text = hosted.run("app", "replay", BANK, state).stdout
    assert "commands_per_second" in text
    assert f"partition 0          {done['hashes']['0']}" in text


def test_replay_into_another_number_of_partitions(hosted: Cli, tmp_path: Path) -> None:
    words = ("app", "replay", BANK)
    [done] = hosted.json(*words, str(tmp_path / "five"), "--resize", "5")
    [other] = hosted.json(*words, str(tmp_path / "two"), "--resize", "2")
    assert (len(done["hashes"]), len(other["hashes"])) == (5, 2)
    assert done["total_hash"] == other["total_hash"]
    text = hosted.run(*words, str(tmp_path / "five"), "--resize", "5").stdout
    assert re.search(f"total_hash +{done['total_hash']}\n", text)
    assert "total_hash" not in hosted.run(*words, str(tmp_path / "three")).stdout
    some = (*words, str(tmp_path / "some"), "--resize", "2", "--partitions", "0")
    assert "replay all of them" in hosted.run(*some, "--until", "9", code=1).stderr


def test_replay_up_to_a_position_or_time(hosted: Cli, tmp_path: Path) -> None:
    [early] = hosted.json("app", "replay", BANK, str(tmp_path / "a"), "--until", "9")
    assert early["position"] == 9
    [same] = hosted.json(
        "app", "replay", BANK, str(tmp_path / "b"), "--as-of", str(early["time"])
    )
    assert same["position"] >= 9
    assert same["time"] <= early["time"]
    words = ("app", "replay", BANK, str(tmp_path / "c"))
    hosted.run(*words, "--until", "9", "--as-of", "2020-01-01", code=2)
    assert (
        "before the requested position 999"
        in hosted.run(*words, "--until", "999", code=6).stderr
    )


def test_replay_of_some_partitions(hosted: Cli, tmp_path: Path) -> None:
    words = ("app", "replay", BANK, str(tmp_path / "again"), "--partitions")
    text = hosted.run(*words, "0-1", "--across", "refuse", code=1).stderr
    assert "also touch" in text
    assert "example: 0-3,7" in hosted.run(*words, "0-x", code=2).stderr
    hosted.run(*words, "0,7", code=1)


def test_replay_says_what_differs(tmp_path: Path) -> None:
    log = Records(bank)
    position = log.command("deposit", 1, 100)
    log.add(Outcomes(1, [(position, bytes(21))]))
    embedded = EmbeddedLog(tmp_path / "bank" / "log", create=True)
    for record in log.records:
        embedded.append(record.value)
    embedded.close()
    cli = Cli(tmp_path / "bank")
    words = ("app", "replay", BANK, str(tmp_path / "again"))
    said = f"the command at {position} (deposit) had a different outcome"
    assert said in cli.run(*words, code=5).stderr
    ran = cli.run(*words, "--outcomes", "report", code=5)
    assert said in ran.stdout
    assert "1 outcomes differ from the log" in ran.stderr
    cli.run(*words, "--outcomes", "off")


def test_what_names_no_application(hosted: Cli, tmp_path: Path) -> None:
    for wrong, code, words in (
        ("bank", 2, "does not name an application"),
        ("nowhere.to.be:found", 3, "there is no module"),
        ("unit.cli.app.test_replay:BANK", 3, "has no application 'BANK'"),
    ):
        ran = hosted.run("app", "replay", wrong, str(tmp_path / "x"), code=code)
        assert words in ran.stderr


def test_verify_compares_with_the_databases(hosted: Cli, tmp_path: Path) -> None:
    text = hosted.run("app", "verify", BANK).stdout
    assert text.startswith("3 partitions are what the log gives at ")
    work = str(tmp_path / "work")
    words = ("app", "verify", BANK, "--work", work)
    found = hosted.json(*words, "--follow", "--every", "1ms", "--rounds", "3")
    assert [each["compared"] for each in found] == [[0, 1, 2]] * 3
    database = apsw.Connection(str(hosted.data / "state" / "partition-0002.db"))
    database.execute("DELETE FROM account")
    database.close()
    ran = hosted.run(*words, code=5)
    assert "partition 2 at" in ran.stderr
    assert "the state of partition 2 differs from what the log gives" in ran.stderr


def test_a_replay_is_verified_on_the_way(hosted: Cli, tmp_path: Path) -> None:
    words = ("replay", BANK, str(tmp_path / "again"), "--verify")
    text = hosted.run(*words).stdout
    assert "3 partitions are what the log gives at " in text
    early = (*words[:2], str(tmp_path / "early"), "--verify", "--until", "9")
    assert "nothing to compare with" in hosted.run(*early, code=1).stderr
    database = apsw.Connection(str(hosted.data / "state" / "partition-0001.db"))
    database.execute("DELETE FROM account")
    database.close()
    other = (*words[:2], str(tmp_path / "other"), "--verify")
    assert "partition 1" in hosted.run(*other, code=5).stderr
    # What was made is right all the same.
    hosted.run("replay", BANK, str(tmp_path / "other"))


def test_a_log_that_begins_later_than_any_snapshot(tmp_path: Path) -> None:
    by_hand = SnapshotSettings(automatic=False, kept=1)
    with bank.open(tmp_path / "bank", snapshots=by_hand) as host:
        host.call("deposit", 1, 100)
        at = host.snapshot().position
        host.call("deposit", 1, 100)
    hosted = Cli(tmp_path / "bank")
    [done] = hosted.json("replay", BANK, str(tmp_path / "again"), "--verify")
    assert done["start"] == at
    for options in (
        ("--from-zero",),
        ("--until", str(at - 1)),
        ("--as-of", "2020-01-01"),
    ):
        ran = hosted.run("replay", BANK, str(tmp_path / "x"), *options, code=6)
        assert "pass snapshots of a host" in ran.stderr
    # Raw directories say the same, and are not taken for an empty log.
    words = ("replay", BANK, str(tmp_path / "raw"), "--raw", str(hosted.data / "log"))
    for more in ((), ("--cut", "any-copy")):
        ran = hosted.run(*words, *more, "--from-zero", code=6)
        assert "the log begins at" in ran.stderr
    [raw] = hosted.json(*words)
    assert raw["hashes"] == done["hashes"]


def test_there_is_nothing_to_replay(tmp_path: Path) -> None:
    Cli(tmp_path / "none").run("app", "replay", BANK, str(tmp_path / "x"), code=3)


def test_damaged_directories_are_in_the_result(tmp_path: Path) -> None:
    log = history(bank, 40)
    paths = nodes(tmp_path, log)
    cli = Cli(tmp_path / "none")
    raw = [word for path in paths for word in ("--raw", str(path))]
    words = ("replay", BANK, str(tmp_path / "a"), "--log", "bank", *raw)
    file = flip(paths[0], log.records[20])
    text = cli.run(*words)
    assert f"left out: {file} from offset" in text.stderr
    [done] = cli.json(*words)
    [damage] = done["lacks"]["damages"]
    assert damage["path"] == file
    assert damage["begin"] < damage["end"]
    assert done["lacks"]["holes"] == []
    # Now nobody has it: refused, and the way out is named.
    for path in paths[1:]:
        flip(path, log.records[20])
    words = ("replay", BANK, str(tmp_path / "b"), "--log", "bank", *raw)
    refused = cli.run(*words, code=5).stderr
    assert "position 21 is in no other directory" in refused
    assert "--cut any-copy" in refused
    [before] = cli.json(*words, "--until", "20")
    assert before["position"] == 20
    words = ("replay", BANK, str(tmp_path / "c"), "--log", "bank", *raw)
    [rest] = cli.json(*words, "--cut", "any-copy", "--outcomes", "report")
    assert rest["lacks"]["holes"] == [[21, 22]]
    assert rest["missing"] == 1


def test_what_is_no_directory_of_a_node_or_a_replay(
    hosted: Cli, tmp_path: Path
) -> None:
    words = ("replay", BANK, str(tmp_path / "x"), "--raw", str(hosted.data))
    assert "the one named log" in hosted.run(*words, code=3).stderr
    ran = hosted.run("replay", BANK, str(hosted.data / "log"), code=1)
    assert "does not exist yet" in ran.stderr
