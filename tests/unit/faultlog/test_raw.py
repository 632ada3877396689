"""Which raw directories are read: the fault records decide."""

from pathlib import Path

import msgspec
import pytest

from braidlog import _native
from braidlog.errors import InvalidArgumentError, NotFoundError, NotReadyError
from braidlog.faultlog import raw
from braidlog.faultlog.configuration import Configuration
from braidlog.faultlog.log import FaultLog
from braidlog.logstream.storage import CommitContext
from braidlog.node.replica_store import ReplicaStore
from braidlog.storage.streams import NodeStore
from braidlog.wire.messages import StreamConfig, StreamStatus

LOG = b"L" * 16


def config(log: str = "bank") -> StreamConfig:
    return StreamConfig(
        stream=4,
        log=LOG,
        name=log,
        epoch=1,
        status=next(iter(StreamStatus)),
        replicas=(1, 2, 3),
        learners=(),
        start=1,
        epochs=(),
        version=0,
        high_watermark=0,
        trim=1,
        options=b"",
    )


def write(path: Path, node: int, records: int, *, failed: tuple[int, ...] = ()) -> Path:
    store = NodeStore(path, entropy=node, segment_bytes=64 << 10)
    about = msgspec.msgpack.encode(config())
    replica = ReplicaStore.create(store, 4, about)
    replica.share_order(LOG)
    for at in range(1, records + 1):
        replica.append(0, [_native.encode_batch([b"%d" % at], timestamps=1)])
        replica.commit(0, CommitContext(at, at, at, 1, at))
    store.sync()
    with FaultLog.open(path, "green", node) as faults:
        faults.record(Configuration(1, 0, (1, 2, 3)), viable=True)
        if failed:
            faults.record(Configuration(1, 1, (1, 2, 3), failed), viable=True)
    store.close()
    return path


def test_a_node_that_is_listed_as_failed_is_left_out(tmp_path: Path) -> None:
    # Node 1 was dropped and went on alone for a while; nobody was promised that.
    one = write(tmp_path / "1", 1, 9)
    two = write(tmp_path / "2", 2, 7, failed=(1,))
    three = write(tmp_path / "3", 3, 7, failed=(1,))
    with raw.open_raw([one, two, three], "bank") as merged:
        assert merged.drain()[0] == 7
        figures = merged.figures()
    assert [source.path for source in figures.sources] == [str(two), str(three)]
    assert figures.duplicates == 7


def test_a_member_that_may_know_more_is_waited_for(tmp_path: Path) -> None:
    two = write(tmp_path / "2", 2, 3, failed=(1,))
    with pytest.raises(NotReadyError, match="3"):
        raw.open_raw([two], "bank")
    # What was opened to look is free again.
    NodeStore(two, entropy=1).close()


def test_directories_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "1", 1, 3)
    other = write(tmp_path / "other", 1, 3)
    with pytest.raises(InvalidArgumentError, match="twice"):
        raw.open_raw([one, other], "bank")
    two, three = write(tmp_path / "2", 2, 3), write(tmp_path / "3", 3, 3)
    with pytest.raises(NotFoundError, match="shop"):
        raw.open_raw([one, two, three], "shop")


def test_an_embedded_log_has_one_directory(tmp_path: Path) -> None:
    for name in ("a", "b"):
        store = NodeStore(tmp_path / name, entropy=1)
        store.create("bank")
        store.close()
    with raw.open_raw([tmp_path / "a"], "bank") as merged:
        assert merged.drain() == (0, 0)
    with pytest.raises(NotFoundError):
        raw.open_raw([tmp_path / "a"], "shop")
    with pytest.raises(InvalidArgumentError, match="give one"):
        raw.open_raw([tmp_path / "a", tmp_path / "b"], "bank")
