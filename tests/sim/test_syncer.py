"""The syncer of simulated nodes tells all that becomes durable."""

import asyncio
from random import Random

from sim.cluster.disk import ClusterDisk, VirtualSyncer
from sim.world import World

from braidlog.store.node_store import NodeStore


def test_what_a_new_log_made_durable_is_told() -> None:
    # Seed 100538, storm `outages`: a replica entered an epoch, a delete in the same
    # turn synced that, the replica never heard of it, and its stream stood still.
    disk = ClusterDisk(Random(1))
    store = NodeStore("/node", entropy=1, disk=disk.native)
    log = store.create("stream.1")
    told: list[int] = []

    async def main() -> None:
        syncer = VirtualSyncer(store, disk)
        syncer.start(lambda: told.append(store.durable()))
        await asyncio.sleep(1)
        told.clear()
        log.native.enter(log.number, 1)
        store.create("stream.2")
        assert store.durable() == store.ticket()
        syncer.wake()
        await asyncio.sleep(1)
        await syncer.close()

    with World(1) as world:
        world.run(main())
    assert len(told) == 1
