"""Hosts of an application over the log of a cluster, as processes and in this one.

Whatever host or node is killed: acknowledged calls are applied once, money is
conserved, and all hosts have the same state; see `cluster.bank`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import braidlog
from braidlog.app import (
    Abort,
    Application,
    ApplicationMismatchError,
    Context,
    ProcedureError,
    SnapshotSettings,
)
from braidlog.app.caller.caller import connect
from braidlog.app.execution.entries import CallId
from braidlog.app.host.cluster_host import ClusterHost
from braidlog.app.log.clustered import ClusteredLog
from braidlog.app.serve.process import HostServer, ServeSettings
from braidlog.cli import main
from braidlog.errors import LockedError, NotReadyError, TrimmedError
from braidlog.testing.cluster import LocalCluster
from braidlog.wire.messages import AppStatus
from cluster.bank import SMALL, Bank
from cluster.banks import ledger
from cluster.hosts import Hosts, free_ports
from unit.app.banking import SCHEMA, make_bank

ROUNDS = int(os.environ.get("BRAIDLOG_ROUNDS", "2"))
SEED = int(os.environ.get("BRAIDLOG_SEED", "0")) or random.randrange(1, 1_000_000)

pytestmark = [pytest.mark.process, pytest.mark.timeout(90)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("nodes")
    with LocalCluster(3, directory=directory, settings=SMALL) as cluster:
        yield cluster


@pytest.mark.slow
@pytest.mark.timeout(90 + 20 * ROUNDS)
def test_a_bank_keeps_its_promises_whatever_is_killed(tmp_path: Path) -> None:
    print(f"BRAIDLOG_SEED={SEED}")  # noqa: T201, RUF100
    tally = Bank(tmp_path, SEED).run(ROUNDS)
    print(tally)  # noqa: T201, RUF100
    assert tally.rounds == ROUNDS
    assert tally.acknowledged > 0


def opened(
    cluster: LocalCluster, directory: Path, log: str, **options: object
) -> ClusterHost:
    bank = options.pop("bank", None) or make_bank()
    assert isinstance(bank, Application)
    return bank.open_cluster(cluster.seeds, directory, log=log, **options)  # type: ignore[arg-type]


def test_a_standby_follows_and_takes_over(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with (
        opened(cluster, tmp_path / "a", "over") as first,
        opened(cluster, tmp_path / "b", "over", active=False) as second,
    ):
        assert (first.active, second.active) == (True, False)
        first.call("deposit", 1, 100)
        # It sees what was acknowledged elsewhere, and takes calls itself.
        assert second.call("balance", 1) == 100
        assert second.call("balance", 1, stale=60) == 100
        assert second.call("transfer", 1, 2, 30) == [70, 30]
        assert first.call("balance", 2) == 30
        second.promote()
        second.promote()  # Nothing more.
        first.call("deposit", 1, 1)
        assert (first.active, second.active) == (False, True)
        # Enough for both to log outcomes, if both were active.
        for _ in range(3):
            calls = [first.submit("deposit", 3, 1) for _ in range(700)]
            assert [call.result() for call in calls][-1] % 700 == 0
        second.wait_applied(first.position)
        assert first.hashes()[1] == second.hashes()[1]
        assert (first.runner.mismatches, second.runner.mismatches) == (0, 0)
    read = ledger(cluster.seeds, "over")
    assert [epoch for _, epoch in read.hosts] == [1, 2]
    since = read.hosts[1][0]
    epochs = {epoch for position, epoch in read.outcomes if position > since}
    assert epochs == {2}, "the old host still writes outcomes"


def test_a_standby_takes_over_when_the_active_host_is_killed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    hosts = Hosts(cluster.seeds, tmp_path)
    try:
        for host, options in enumerate(((), ("--standby", "--promote-after", "5"))):
            hosts.start(host, "--log", "killed", *options)
            hosts.wait_ready(host)
        with connect(hosts.addresses, application="bank") as caller:
            assert caller.call("deposit", 1, 100) == 100
            hosts.kill(0)
            assert hosts.status(1)["role"] == "standby"
            assert caller.call("deposit", 1, 1) == 101  # Nobody waits for that.
            wait(lambda: hosts.status(1)["role"] == "active")
            said = hosts.status(1)
            assert (said["epoch"], said["alarms"]) == (2, [])
    finally:
        hosts.close()
    assert [epoch for _, epoch in ledger(cluster.seeds, "killed").hosts] == [1, 2]


def test_partitions_change_while_a_host_is_killed(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    """Callers only see that a host is gone; what it had to do is done at its start."""
    hosts = Hosts(cluster.seeds, tmp_path)
    done = threading.Event()
    counts = [0, 0, 0, 0]

    def calling(account: int) -> None:
        with connect(hosts.addresses, application="bank") as caller:
            while not done.is_set() or counts[account] < 100:
                counts[account] += 1
                assert caller.call("deposit", account, 1) == counts[account]

    def look(host: int) -> AppStatus:
        with connect(hosts.address(host), application="bank") as caller:
            return caller.status(hashes=True)

    try:
        for host in hosts.numbers:
            hosts.start(host, "--log", "sizes", *(("--standby",) if host else ()))
            hosts.wait_ready(host)
        with ThreadPoolExecutor(len(counts)) as pool:
            callers = [pool.submit(calling, account) for account in range(len(counts))]
            try:
                with connect(hosts.address(1), application="bank") as caller:
                    assert caller.resize(5).partitions == 5
                    hosts.kill(0)
                    assert caller.resize(2).partitions == 2
                    hosts.start(0, "--log", "sizes")
                    assert caller.resize(7).partitions == 7
                    hosts.wait_ready(0)
            finally:
                done.set()
            for each in callers:
                each.result()
        for host in hosts.numbers:
            with connect(hosts.address(host), application="bank") as caller:
                found = [caller.call("balance", n) for n in range(len(counts))]
                assert found == counts
        read = ledger(cluster.seeds, "sizes")
        assert read.partitions == 7
        assert [read.balances[n] for n in range(len(counts))] == counts
        one, two = look(0), look(1)
        assert (one.partitions, one.hashes) == (7, two.hashes)
        assert one.mismatches == two.mismatches == 0
    finally:
        hosts.close()


def test_a_call_that_is_repeated_elsewhere_is_executed_once(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with (
        opened(cluster, tmp_path / "a", "once") as first,
        opened(cluster, tmp_path / "b", "once", active=False) as second,
    ):
        call = first.new_call_id()
        assert first.call("deposit", 1, 5, call_id=call) == 5
        # A host that has not read so far yet asks the cluster whether it was made.
        assert second.call("deposit", 1, 5, call_id=CallId(call)) == 5
        assert first.call("balance", 1) == 5
        other = second.new_call_id()
        with pytest.raises(Abort):
            second.call("transfer", 1, 2, 50, call_id=other)
        with pytest.raises(Abort):
            first.call("transfer", 1, 2, 50, call_id=other)


def test_hosts_that_begin_a_log_at_a_time_agree(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    hosts: list[ClusterHost] = []

    def begin(number: int) -> None:
        hosts.append(opened(cluster, tmp_path / str(number), "begun"))

    threads = [threading.Thread(target=begin, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(hosts) == 3
    for number, host in enumerate(hosts):
        host.call("deposit", number, 7)
    assert [host.call("total") for host in hosts] == [21, 21, 21]
    assert sum(host.active for host in hosts) == 1
    for host in hosts:
        host.close()


def test_a_host_without_state_takes_that_of_another(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with opened(cluster, tmp_path / "host-0", "bank") as host:
        for account in range(20):
            host.call("deposit", account, 5)
        host.cursor.move()
        kept = host.cursor.kept
        assert kept == host.position
        assert trimmed(cluster.seeds, "bank", kept + 1) == kept + 1
        # What the host still needs is kept for it.
        host.call("deposit", 1, 1)
        assert trimmed(cluster.seeds, "bank", host.position + 1) == kept + 1
    with pytest.raises(TrimmedError, match="to join"):
        opened(cluster, tmp_path / "new", "bank")
    hosts = Hosts(cluster.seeds, tmp_path)
    try:
        hosts.start(0)
        hosts.wait_ready(0)
        bank = make_bank(results_kept=100_000)
        options = {"bank": bank, "active": False, "join": hosts.address(0)}
        with (
            opened(cluster, tmp_path / "new", "bank", **options) as host,
            connect(hosts.address(0), application="bank") as caller,
        ):
            assert host.call("total") == 101
            caller.call("deposit", 3, 1)
            said = caller.status(hashes=True)
            host.wait_applied(said.applied)
            assert tuple(host.hashes()[1]) == said.hashes
    finally:
        hosts.close()


def test_hosts_take_snapshots_and_the_log_goes_to_the_second_best(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    given = SnapshotSettings(reserve_bytes=0, kept=1, snapshots_min=2)
    standby = {"snapshots": given, "active": False}
    with opened(cluster, tmp_path / "a", "kept", snapshots=given) as first:
        with opened(cluster, tmp_path / "b", "kept", **standby) as second:
            for account in range(40):
                first.call("deposit", account, 5)
            older = first.snapshot()
            assert first_of(cluster.seeds, "kept") == 1
            second.call("transfer", 1, 2, 1)
            newer = second.snapshot()
            assert newer.position > older.position
            # The active host notices, and knows what it may do without a pin.
            wait(lambda: first_of(cluster.seeds, "kept") == older.position + 1)
            assert first.snapshot_status().alarms == ()
        shutil.rmtree(tmp_path / "b" / "state")
        first.call("deposit", 1, 1)
        with opened(cluster, tmp_path / "b", "kept", **standby) as second:
            restored = second.runner.applied  # What it executed beyond that is more.
            assert restored <= first.position - newer.position
            assert second.call("balance", 2) == 6
            # One without state, from the process of another.
            address = f"127.0.0.1:{free_ports(1)[0]}"
            with served(first, address):
                third = opened(cluster, tmp_path / "c", "kept", **standby, join=address)
            with third:
                assert third.call("total") == 201
                for host in (first, second, third):
                    host.wait_applied(host.runner.end() - 1)
                found = [host.hashes() for host in (first, second, third)]
                assert found[0] == found[1] == found[2]
            check_known(cluster.seeds, [first, second, third])


def check_known(seeds: str, hosts: list[ClusterHost]) -> None:
    """Hosts of which the last is closed, and has no snapshot."""

    def app(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
        options = [*arguments, "--cluster", seeds, "--log", "kept", "--json"]
        result = CliRunner().invoke(main, ["app", *options])
        assert result.exit_code == code, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    names = [host.runner.role.host.hex() for host in hosts]
    rows = {row["host"]: row for row in app("hosts")}
    assert [rows[name]["counts"] for name in names] == [True, True, False]
    assert rows[names[0]]["snapshot"] == hosts[0].snapshots()[-1].position
    assert rows[names[2]]["holds"], "its lease has not ended"
    app("forget", names[2][:8], code=9)
    app("forget", "ffffffff", code=3)
    app("forget", names[2][:8], "--force")
    assert {row["host"] for row in app("hosts")} == set(names[:2])
    # One that is there is known again.
    app("forget", names[1], "--force")
    hosts[1].cursor.move()
    hosts[1]._kept().renew()
    assert {row["host"]: row["counts"] for row in app("hosts")}[names[1]]


def test_a_loop_is_given_up_by_all_hosts(cluster: LocalCluster, tmp_path: Path) -> None:
    def bank() -> Application:
        made = make_bank()

        @made.procedure(key="account")
        def forever(ctx: Context, account: int) -> None:
            ctx.execute("INSERT OR REPLACE INTO account VALUES (?, 7)", (account,))
            while True:
                pass

        return made

    def host(name: str, **options: object) -> ClusterHost:
        options |= {"bank": bank(), "watchdog": 1.0}
        return opened(cluster, tmp_path / name, "loop", **options)

    with host("a") as first, host("b", active=False) as second:
        first.call("deposit", 1, 5)
        with pytest.raises(ProcedureError, match="aborted by the host") as caught:
            second.call("forever", 1, timeout=60)
        assert caught.value.kind == "GivenUp"
        assert second.call("deposit", 1, 5, timeout=60) == 10
        # One that begins afterwards finds what the log says.
        with host("c", active=False) as third:
            hosts = (first, second, third)
            for each in hosts:
                each.wait_applied(first.runner.end() - 1, 60)
            found = [each.hashes()[1] for each in hosts]
            assert found[0] == found[1] == found[2]
            assert [each.runner.mismatches for each in hosts] == [0, 0, 0]


@contextlib.contextmanager
def served(host: ClusterHost, address: str) -> Iterator[None]:
    """Let others call a host of this process."""
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with HostServer(host, ServeSettings(listen=address)):
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(30)
        yield
    finally:
        over.set()
        thread.join()


def wait(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.1)


def first_of(seeds: str, log: str) -> int:
    async def ask() -> int:
        async with braidlog.connect_async(seeds) as client:
            return (await (await client.log(log)).refresh()).start

    return asyncio.run(ask())


def trimmed(seeds: str, log: str, before: int) -> int:
    async def trim() -> int:
        async with braidlog.connect_async(seeds) as client:
            return await (await client.log(log)).trim(before)

    return asyncio.run(trim())


def test_a_directory_belongs_to_one_host_and_one_log(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with (
        opened(cluster, tmp_path, "mine"),
        pytest.raises(LockedError, match="another host"),
    ):
        opened(cluster, tmp_path, "mine")
    with pytest.raises(ApplicationMismatchError, match="was built from the log"):
        opened(cluster, tmp_path, "yours")
    other = Application("shop", partitions=3, schema=SCHEMA)
    with pytest.raises(ApplicationMismatchError, match="this program has 'shop'"):
        opened(cluster, tmp_path / "shop", "mine", bank=other)


def test_new_code_waits_until_the_log_has_its_catalog(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    newer = make_bank()

    @newer.procedure(key="account")
    def close(ctx: object, account: int) -> int:
        return account

    with (
        opened(cluster, tmp_path / "a", "newer") as first,
        opened(cluster, tmp_path / "b", "newer", bank=newer, active=False) as second,
    ):
        with pytest.raises(NotReadyError, match="promote"):
            second.call("close", 1)
        # What both have is taken.
        assert second.call("deposit", 1, 1) == 1
        second.promote()
        assert second.call("close", 1) == 1
        assert first.runner.failure is None or "close" in str(first.runner.failure)


def test_a_host_reads_ahead_as_far_as_is_bounded(cluster: LocalCluster) -> None:
    log = ClusteredLog(
        lambda: braidlog.connect_async(cluster.seeds), "ahead", streams=2
    )
    try:
        values = [b"%d" % number for number in range(60)]
        positions = [log.append(value) for value in values]
        assert positions == list(range(1, 61))
        assert log.latest() == 61
        assert log.wait(1, 30)
        # It does not stop before it is full, and then it does.
        deadline = time.monotonic() + 30
        while len(log._chunks) < 16 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.3)
        assert len(log._chunks) == 16
        assert log.end < 61
        found: list[bytes] = []
        while len(found) < 60:
            some = log.read(len(found) + 1, 3)
            assert 0 < len(some) <= 3
            assert some[0].position == len(found) + 1
            found += [record.value for record in some]
        assert found == values
        assert not log.wait(61, 0.01)
        log.wake()
        assert list(log.read(61, 3)) == []
    finally:
        log.close()
        log.close()
