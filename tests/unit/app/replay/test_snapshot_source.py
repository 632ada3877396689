"""Snapshots on disk as what replay begins from: newest, sound, at the position."""

from __future__ import annotations

import shutil
from hashlib import blake2b
from pathlib import Path

import pytest

from braidlog.app.determinism.codec import encode
from braidlog.app.replay.audit import compare
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import Replay, replay
from braidlog.app.replay.snapshot_source import SnapshotStarts
from braidlog.app.replay.target import Target
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import AlreadyExistsError, CorruptionError
from unit.app.banking import make_bank
from unit.app.logs import ListInput, history, oracle
from unit.app.records import Records

COMMANDS = 120
END = COMMANDS + 2


@pytest.fixture
def log() -> Records:
    return history(make_bank(), COMMANDS)


@pytest.fixture
def starts(log: Records, tmp_path: Path) -> SnapshotStarts:
    """Snapshots 1, 2 and 3, as a host writes them, at 30, 60 and 90."""
    path = tmp_path / "snapshots"
    for number in (1, 2, 3):
        write(log, path / f"{number:012}", number * 30, number)
    (path / "new").mkdir()
    return SnapshotStarts(path)


def write(log: Records, path: Path, position: int, number: int) -> None:
    path.mkdir(parents=True)
    work = path / "work"
    replay(log.application, ListInput(log.records), work, until=position)
    state = SqliteState(work, 3)
    files = []
    for partition, each in enumerate(state.partitions):
        view = each.view()
        name = f"partition-{partition:04}.db"
        view.copy(path / name)
        data = (path / name).read_bytes()
        digest = blake2b(data, digest_size=16).digest()
        files.append([name, len(data), digest, view.hash()])
        view.close()
    state.close()
    shutil.rmtree(work)
    facts = {"format": 1, "files": files, "position": position, "number": number}
    facts["partitions"] = len(files)
    (path / "snapshot.cbor").write_bytes(encode(facts))


def test_the_newest_is_taken_and_the_state_is_the_same(
    log: Records, starts: SnapshotStarts, tmp_path: Path
) -> None:
    trimmed = ListInput(log.records, first=91)
    done = replay(log.application, trimmed, tmp_path / "again", starts=starts)
    assert (done.start, done.position) == (90, END)
    whole = oracle(log, tmp_path / "oracle", END)
    assert done.hashes == whole
    for position, begun in ((29, 0), (30, 30), (75, 60), (90, 90)):
        path = tmp_path / str(position)
        early = replay(
            log.application,
            ListInput(log.records),
            path,
            starts=starts,
            until=position,
        )
        assert (early.start, early.position) == (begun, position)


@pytest.mark.parametrize("damage", ["flip", "gone", "facts", "partitions"])
def test_a_damaged_one_gives_way_to_an_older(
    log: Records, starts: SnapshotStarts, tmp_path: Path, damage: str
) -> None:
    newest = tmp_path / "snapshots" / f"{3:012}"
    file = newest / "partition-0001.db"
    if damage == "flip":
        data = bytearray(file.read_bytes())
        data[5000] ^= 1
        file.write_bytes(data)
    elif damage == "gone":
        file.unlink()
    elif damage == "facts":
        (newest / "snapshot.cbor").write_bytes(b"\x00")
    else:
        facts = {"format": 1, "files": [], "position": 90, "partitions": 3}
        (newest / "snapshot.cbor").write_bytes(encode(facts))
    source = ListInput(log.records)
    done = replay(log.application, source, tmp_path / "again", starts=starts)
    assert done.start == 60
    assert done.hashes == oracle(log, tmp_path / "oracle", END)


def test_a_state_that_is_not_what_the_facts_say(
    log: Records, starts: SnapshotStarts, tmp_path: Path
) -> None:
    """The checksums fit, the state hash does not: the host wrote something else."""
    newest = starts(None)
    assert newest is not None
    name, size, digest, state_hash = newest.files[0]
    wrong = (name, size, digest, bytes(16)), *newest.files[1:]
    bad = type(newest)(newest.path, newest.position, wrong)
    with pytest.raises(CorruptionError, match="a different state hash"):
        replay(
            log.application,
            ListInput(log.records),
            tmp_path / "again",
            starts=lambda _: bad,
        )
    assert state_hash != bytes(16)
    # What was half restored is not gone on from.
    done = replay(log.application, ListInput(log.records), tmp_path / "again")
    assert done.start == 0


def test_the_tail_is_compared_at_every_snapshot(
    log: Records, starts: SnapshotStarts, tmp_path: Path
) -> None:
    target = Target(tmp_path / "work", log.application)
    with Replay(
        log.application,
        ListInput(log.records),
        target,
        starts=lambda _: starts(30),
    ) as going:
        later = [seen for seen in starts.seen() if seen[0].position > 30]
        found = [compare(going, seen) for seen in later]
    assert [each.position for each in found] == [60, 90]
    assert [each.findings for each in found] == [(), ()]
    # Another log: from the snapshot on its hashes are not those.
    log.records[70] = log.records[69].__class__(71, 71_000, None, log.records[1].value)
    target = Target(tmp_path / "other", log.application)
    with Replay(
        log.application,
        ListInput(log.records),
        target,
        starts=lambda _: starts(30),
    ) as going:
        found = [compare(going, seen) for seen in later]
    assert [bool(each.findings) for each in found] == [False, True]


def test_a_directory_is_ours_wherever_starting_over_was_killed(
    log: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, parts = tmp_path / "again", frozenset({0, 1, 2})
    replay(log.application, ListInput(log.records), path)

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    for step in ("unlink", "replace"):
        target = Target(path, log.application)
        with monkeypatch.context() as patched:
            patched.setattr(Path, step, killed)
            with pytest.raises(Killed):
                target.start_over(parts)
        shutil.copytree(path, tmp_path / step)
        assert step == "replace" or not Target(path, log.application).begun(parts)
        done = replay(log.application, ListInput(log.records), tmp_path / step)
        assert done.commands > 0
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "replay.json.new").touch()
    replay(log.application, ListInput(log.records), fresh)
    (fresh / "replay.json").unlink()
    with pytest.raises(AlreadyExistsError):
        Target(fresh, log.application)


def test_there_are_none(tmp_path: Path) -> None:
    assert SnapshotStarts(tmp_path / "none")(None) is None


def test_the_snapshots_that_a_host_takes(tmp_path: Path) -> None:
    """The log before them is gone; the host goes on beside the replay."""
    bank = make_bank()
    with bank.open(tmp_path / "bank") as host:
        for account in range(30):
            host.call("deposit", account, 100)
        taken = host.snapshot()
        for account in range(29):
            host.call("transfer", account, account + 1, 50)
        position, hashes = host.hashes()
        source = commands_of(tmp_path / "bank")
        real = SnapshotStarts(tmp_path / "bank" / "snapshots")
        done = replay(bank, source, tmp_path / "again", starts=real, until=position)
        source.close()
    assert done.start == taken.position
    assert done.commands == 29
    assert list(done.hashes.values()) == hashes
