"""The question for a producer's next sequence is one that the store answers."""

from __future__ import annotations

import pytest

from braidlog import _native
from braidlog.client.append.rows import SEQUENCE_NEVER
from braidlog.client.batches import Columns, NativeCodec
from braidlog.errors import SequenceGapError
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.store.node_store import NodeStore
from braidlog.types import Producer


def test_the_sequence_that_is_never_reached_is_refused_as_a_gap() -> None:
    store = NodeStore("/n", entropy=1, disk=_native.MemoryDisk())
    stream = ReplicaStore.create(store, 1)
    stream.enter(1)
    record = Columns([b""], None, 0, None)
    batch = NativeCodec().encode([record], Producer(5), SEQUENCE_NEVER, "none")
    with pytest.raises(SequenceGapError) as caught:
        stream.append(1, [batch])
    assert caught.value.expected == 1
    store.close()
