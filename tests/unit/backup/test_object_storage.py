"""Backups in object storage: a server on this machine that speaks S3."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs

import braidlog
from braidlog.backup import backups, damaged, delete, restore, verify
from braidlog.backup.place import place_of
from braidlog.errors import (
    BackupDamagedError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from braidlog.testing import MemoryStore
from unit.client.tables.test_pinned import made, seen, seen_in, trim
from unit.node.tables.cluster import running
from unit.node.tables.test_hosts import fill

server = pytest.importorskip("moto.server")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = server.ThreadedMotoServer("127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    yield f"{host}:{port}"
    running.stop()


@pytest.fixture
def system(endpoint: str, request: pytest.FixtureRequest) -> fs.FileSystem:
    found = fs.S3FileSystem(
        access_key="user",
        secret_key="pa55word",
        scheme="http",
        endpoint_override=endpoint,
        region="us-east-1",
        allow_bucket_creation=True,
    )
    found.create_dir("bucket")
    return found


@pytest.fixture
def place(system: fs.FileSystem, endpoint: str, tmp_path: Path) -> str:
    reach = f"scheme=http&endpoint_override={endpoint}&region=us-east-1"
    return f"s3://user:pa55word@bucket/{tmp_path.name}?{reach}"


def test_from_the_backup_to_the_restored_directory(
    place: str, system: fs.FileSystem, tmp_path: Path
) -> None:
    with MemoryStore(segment_bytes=1 << 20, wal_bytes_max=64 << 20) as store:
        log = store.create_log("orders")
        log.append_many([b"%d" % i * 100 for i in range(20_000)])
        first = store.backup(place)
        log.append(b"later")
        second = store.backup(place)
        assert second.base == first.id
        assert second.new_bytes < 1000 < second.bytes
        assert [each.id for each in backups(place)] == [first.id, second.id]
        assert verify(place).findings == []
        restore(place, tmp_path / "restored")
        with braidlog.open(tmp_path / "restored") as other:
            found = [r.as_tuple() for r in other.log("orders").read()]
        assert found == [r.as_tuple() for r in log.read()]

        delete(place, first.id)
        assert verify(place).findings == []
        # A part that is damaged, and then one that is gone.
        where = place_of(place)
        for part in second.parts:
            path = f"bucket/{tmp_path.name}/{part.path}"
            with system.open_output_stream(path) as out:
                out.write(b"other")
        assert len(verify(place).findings) == len(second.parts)
        for part in second.parts:
            where.remove(part.path)
            where.remove(part.path)
        assert {f.problem.rpartition(" ")[2] for f in verify(place).findings} == {
            "missing"
        }
        with pytest.raises(BackupDamagedError, match="is missing"):
            restore(place, tmp_path / "again")
        with pytest.raises(BackupDamagedError, match="an earlier backup needs"):
            store.backup(place)
        assert store.backup(place, base="none").records == 20_001
        for each in backups(place):
            delete(place, each.id)
        assert where.names("parts") == where.names("running") == []
    assert damaged(place) == {}


async def test_tables_of_a_cluster(place: str, tmp_path: Path) -> None:
    async with running(tmp_path, 1, native=True) as nodes:
        log, table = await made(nodes, 1)
        await trim(log, await fill(log, 300))
        first = await nodes.client.backup(place)
        await fill(log, 20, b"w")
        second = await nodes.client.backup(place)
        wanted = await seen(table)
    assert second.base == first.id
    assert {*second.tables[0].files} & {*first.tables[0].files}
    assert (await asyncio.to_thread(verify, place)).findings == []
    await asyncio.to_thread(restore, place, tmp_path / "restored")
    assert await asyncio.to_thread(seen_in, tmp_path / "restored") == wanted
    file = second.tables[0].files[0]
    await asyncio.to_thread(place_of(place).remove, file.path)
    (finding,) = (await asyncio.to_thread(verify, place)).findings
    assert (finding.table, finding.problem.split()[-1]) == ("stock", "missing")


def test_no_secret_is_shown(place: str) -> None:
    where = place_of(place)
    assert "pa55word" not in where.location + where.shown("x")
    with pytest.raises(NotFoundError) as caught:
        verify(place)
    assert "pa55word" not in str(caught.value)


def test_what_the_storage_refuses_is_named(place: str, tmp_path: Path) -> None:
    elsewhere = place.replace("@bucket/", "@nothing/")
    with MemoryStore() as store:
        store.create_log("orders").append(b"tea")
        with pytest.raises(UnavailableError) as caught:
            store.backup(elsewhere)
    assert "nothing" in caught.value.path
    assert "pa55word" not in str(caught.value)
    for wrong in ("s3://user:pa55word@bucket/x?nonsense=1", "s3://user:pa55word@[/x"):
        with pytest.raises(InvalidArgumentError, match="cannot hold backups") as raised:
            backups(wrong)
        assert "pa55word" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_place_without_a_bucket_is_refused(scheme: str) -> None:
    with pytest.raises(InvalidArgumentError, match="names no bucket"):
        backups(f"{scheme}://")


def test_a_write_that_fails_makes_no_object(place: str) -> None:
    where = place_of(place)

    def failing() -> None:
        with where.writing("parts/x") as file:
            file.write(b"some")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert where.names("parts") == []
    where.write("parts/x", b"whole")
    assert (where.read("parts/x", 10), where.size("parts/x")) == (b"whole", 5)
    with pytest.raises(FileNotFoundError):
        where.open("parts/y")
