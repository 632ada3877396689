"""Commands in the raw directories of a dead cluster: copies, holes, the two cuts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
import pytest

from braidlog import Record, _native
from braidlog.app import Application
from braidlog.app.log.source import LOG_NAME
from braidlog.app.replay.run import replay
from braidlog.errors import CorruptionError, NotReadyError
from braidlog.faultlog.configuration import Configuration
from braidlog.logstream.storage import CommitContext
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.sources.dead import DeadSource
from braidlog.store.node_store import NodeStore
from unit.app.banking import make_bank
from unit.app.logs import ListInput, history, oracle
from unit.app.records import Records
from unit.node.rescue.test_raw import LOG, config

COMMANDS = 60
END = COMMANDS + 3


@pytest.fixture
def log() -> Records:
    return history(make_bank(), COMMANDS)


def several(log: Records) -> list[int]:
    """Positions of commands on several partitions."""
    from braidlog.app.execution.entries import Command, unpack

    entries = ((r.position, unpack(r.value, r.position)) for r in log.records)
    return [
        p for p, e in entries if isinstance(e, Command) and len(e.partitions or []) > 1
    ]


def write(
    path: Path,
    node: int,
    records: Sequence[Record],
    *,
    without: Collection[int] = (),
    failed: tuple[int, ...] = (),
) -> Path:
    """A node's directory with two streams, which take turns; some are not there.

    What comes behind a missing record in its stream is not there either.
    """
    store = NodeStore(path, entropy=node, segment_bytes=64 << 10)
    streams: dict[int, tuple[ReplicaStore, int]] = {}
    for number in (4, 5):
        about = msgspec.structs.replace(config(), stream=number)
        replica = ReplicaStore.create(store, number, msgspec.msgpack.encode(about))
        replica.share_order(LOG)
        streams[number] = replica, 1
    gone: set[int] = set()
    for record in records:
        number = 4 + record.position % 2
        if record.position in without:
            gone.add(number)
        for each, (replica, llsn) in streams.items():
            if each in gone:
                continue
            mine = each == number
            if mine:
                batch = _native.encode_batch(
                    [record.value], timestamps=record.timestamp
                )
                replica.append(0, [batch])
                streams[each] = replica, llsn + 1
            position = record.position
            replica.commit(
                0, CommitContext(position, position, llsn, int(mine), position)
            )
    store.sync()
    with FaultLog.open(path, "green", node) as faults:
        faults.record(Configuration(1, 0, (1, 2, 3)), viable=True)
        if failed:
            faults.record(Configuration(1, 1, (1, 2, 3), failed), viable=True)
    store.close()
    return path


def nodes(path: Path, log: Records, **without: Collection[int]) -> list[Path]:
    return [
        write(path / name, number, log.records, without=without.get(name, ()))
        for number, name in enumerate(("one", "two", "three"), 1)
    ]


def test_the_directories_of_a_cluster(log: Records, tmp_path: Path) -> None:
    source = DeadSource(nodes(tmp_path, log), "bank")
    done = replay(log.application, source, tmp_path / "again")
    assert (done.position, done.missing) == (END - 1, 0)
    assert done.hashes == oracle(log, tmp_path / "oracle", END - 1)
    assert len(list(source.records(1))) == END - 1
    assert source.figures is not None
    assert source.figures.duplicates == 2 * (END - 1)
    done = replay(log.application, source, tmp_path / "early", until=21)
    assert done.hashes == oracle(log, tmp_path / "at-21", 21)


@pytest.mark.parametrize("cut", ["strict", "any-copy"])
def test_a_command_on_several_partitions_that_one_directory_has(
    log: Records, tmp_path: Path, cut: str
) -> None:
    """It is executed on all of its partitions, whatever the cut."""
    at = several(log)[-1]
    paths = nodes(tmp_path, log, one=[at], three=[at])
    source = DeadSource(paths, "bank", cut=cut)  # type: ignore[arg-type]
    done = replay(log.application, source, tmp_path / "again", cut=cut)
    assert (done.position, done.missing) == (END - 1, 0)
    assert done.hashes == oracle(log, tmp_path / "oracle", END - 1)


def test_a_command_that_no_directory_has(log: Records, tmp_path: Path) -> None:
    """Strict: what was before. Any copy: also what the other stream has behind it."""
    at = several(log)[0]
    paths = nodes(tmp_path, log, one=[at], two=[at], three=[at])
    strict = DeadSource(paths, "bank")
    done = replay(log.application, strict, tmp_path / "strict")
    assert (done.position, done.missing) == (at - 1, 0)
    assert done.hashes == oracle(log, tmp_path / "before", at - 1)
    strict.close()
    lossy = DeadSource(paths, "bank", cut="any-copy")
    done = replay(log.application, lossy, tmp_path / "any", cut="any-copy")
    lossy.close()
    there = [r for r in log.records if r.position < at or r.position % 2 != at % 2]
    assert done.missing == there[-1].position - len(there)
    serial = ListInput(there, gaps=True)
    again = replay(log.application, serial, tmp_path / "serial", cut="any-copy")
    assert done.hashes == again.hashes
    assert done.commands == len(there) - 2


def test_the_fault_log_says_who_is_valid(log: Records, tmp_path: Path) -> None:
    """Node 1 was dropped, and has commands that nobody was promised."""
    one = write(tmp_path / "one", 1, log.records)
    kept = log.records[:40]
    two = write(tmp_path / "two", 2, kept, failed=(1,))
    three = write(tmp_path / "three", 3, kept, failed=(1,))
    source = DeadSource([one, two, three], "bank")
    done = replay(log.application, source, tmp_path / "again")
    assert done.position == 40
    assert done.hashes == oracle(log, tmp_path / "oracle", 40)
    with pytest.raises(NotReadyError, match="3"):
        replay(log.application, DeadSource([two], "bank"), tmp_path / "alone")


def test_copies_that_differ(log: Records, tmp_path: Path) -> None:
    one = write(tmp_path / "one", 1, log.records)
    other = list(log.records)
    other[30] = Record(31, other[30].timestamp, None, other[29].value)
    two = write(tmp_path / "two", 2, other)
    three = write(tmp_path / "three", 3, log.records)
    with pytest.raises(CorruptionError, match=r"(?s)one.*two|two.*one"):
        replay(log.application, DeadSource([one, two, three], "bank"), tmp_path / "x")


def test_the_directory_of_an_embedded_log(tmp_path: Path) -> None:
    bank: Application = make_bank()
    with bank.open(tmp_path / "bank") as host:
        for account in range(30):
            host.call("deposit", account, 5)
        position, hashes = host.hashes()
    source = DeadSource([tmp_path / "bank" / "log"], LOG_NAME)
    done = replay(bank, source, tmp_path / "again", until=position)
    source.close()
    assert list(done.hashes.values()) == hashes


# --- damage


def flip(path: Path, record: Record) -> str:
    """Damage the last copy of a value in a directory; return the file."""
    for file in sorted(path.glob("wal/*.wal")):
        data = bytearray(file.read_bytes())
        if (at := data.rfind(record.value)) >= 0:
            data[at + len(record.value) // 2] ^= 1
            file.write_bytes(data)
            return str(file)
    raise AssertionError(f"{path} lacks {record.position}")


def test_damage_that_other_directories_make_up_for(
    log: Records, tmp_path: Path
) -> None:
    paths = nodes(tmp_path, log)
    files = [
        flip(path, log.records[at]) for path, at in zip(paths, (30, 45, 5), strict=True)
    ]
    source = DeadSource(paths, "bank")
    done = replay(log.application, source, tmp_path / "again")
    assert (done.position, done.missing) == (END - 1, 0)
    assert done.hashes == oracle(log, tmp_path / "oracle", END - 1)
    # However often it was read, each once.
    assert [damage.path for damage in source.found.damages] == files
    assert not source.found.holes


def test_damage_that_nothing_makes_up_for(log: Records, tmp_path: Path) -> None:
    paths = nodes(tmp_path, log)
    at = several(log)[1]
    for path in paths:
        flip(path, log.records[at - 1])
    strict = DeadSource(paths, "bank")
    with pytest.raises(CorruptionError, match=f"position {at} is in no other"):
        replay(log.application, strict, tmp_path / "strict")
    assert len(strict.found.damages) == 3
    # What was before it can be had.
    done = replay(log.application, strict, tmp_path / "before", until=at - 1)
    strict.close()
    assert done.hashes == oracle(log, tmp_path / "oracle", at - 1)
    lossy = DeadSource(paths, "bank", cut="any-copy")
    done = replay(log.application, lossy, tmp_path / "any", cut="any-copy")
    lossy.close()
    there = [record for record in log.records if record.position != at]
    serial = ListInput(there, gaps=True)
    again = replay(log.application, serial, tmp_path / "serial", cut="any-copy")
    assert (done.hashes, done.missing) == (again.hashes, 1)
    assert lossy.found.holes == [(at, at + 1)]
