"""What a check refuses is what a start refuses, and a check changes nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import braidlog
from braidlog.errors import ForeignFormatError, LogError, UnavailableError
from braidlog.faultlog.configuration import Configuration
from braidlog.node.config import NodeConfig, parse
from braidlog.node.errors import DamagedNodeError
from braidlog.node.preflight import preflight
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.node.server import NodeServer
from cluster.disks import Disk, why_not
from cluster.hosts import free_ports
from unit.serving.test_security import certificate, needs_openssl

needs_disks = pytest.mark.skipif(bool(why_not()), reason=why_not() or "none")


def settings(data: Path, listen: str = "", *, node: int = 1, more: str = "") -> str:
    listen = listen or f"127.0.0.1:{free_ports(1)[0]}"
    return f"""
        [node]
        id = {node}
        data = "{data}"
        listen = "{listen}"
        [cluster]
        voters = {{ {node} = "{listen}" }}
        {more}
        """


def config(text: str) -> NodeConfig:
    return parse(text, {})


def contents(directory: Path) -> dict[str, bytes]:
    files = (each for each in directory.rglob("*") if each.is_file())
    return {str(each): each.read_bytes() for each in files}


@pytest.fixture
async def used(tmp_path: Path) -> Path:
    """Return the directory of a node that was started and stopped."""
    async with NodeServer(config(settings(tmp_path / "node"))):
        pass
    with FaultLog.open(tmp_path / "node", "braidlog", 1) as faults:
        faults.record(Configuration(1, 0, (1,)), viable=True)
    return tmp_path / "node"


Broken = Callable[[Path, Path], str]


def an_embedded_log(used: Path, scratch: Path) -> str:
    with braidlog.open(scratch / "log") as node:
        node.create_log("orders")
    return settings(scratch / "log")


def another_node(used: Path, scratch: Path) -> str:
    return settings(used, node=2)


def a_file(used: Path, scratch: Path) -> str:
    (scratch / "file").touch()
    return settings(scratch / "file")


def below_a_file(used: Path, scratch: Path) -> str:
    (scratch / "file").touch()
    return settings(scratch / "file" / "data")


def no_fault_log(used: Path, scratch: Path) -> str:
    (used / "FAULTS").unlink()
    return settings(used)


def damage(used: Path, scratch: Path) -> str:
    (used / "CURRENT").write_bytes(b"x")
    return settings(used)


def no_address_of_this_machine(used: Path, scratch: Path) -> str:
    return settings(used, "192.0.2.1:7400", more="[security]\ninsecure = true")


def no_host(used: Path, scratch: Path) -> str:
    return settings(used, "nowhere.invalid:7400", more="[security]\ninsecure = true")


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (an_embedded_log, ForeignFormatError),
        (another_node, ForeignFormatError),
        (a_file, UnavailableError),
        (below_a_file, UnavailableError),
        (no_fault_log, DamagedNodeError),
        (damage, DamagedNodeError),
        (no_address_of_this_machine, UnavailableError),
        (no_host, UnavailableError),
    ],
)
async def test_it_is_refused_as_by_a_start(
    used: Path, tmp_path: Path, broken: Broken, expected: type[LogError]
) -> None:
    broken_config = config(broken(used, tmp_path))
    before = contents(tmp_path)
    with pytest.raises(expected):
        preflight(broken_config)
    assert contents(tmp_path) == before
    with pytest.raises(expected):
        await NodeServer(broken_config).__aenter__()


async def test_a_port_that_is_taken(used: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        listen = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=f"cannot listen on {listen}"):
            preflight(config(settings(used, listen)))


async def test_what_serves_passes_and_nothing_is_made(used: Path) -> None:
    before = contents(used)
    assert preflight(config(settings(used))) == []
    assert contents(used) == before
    new = used.parent / "not" / "yet"
    assert preflight(config(settings(new))) == []
    assert not new.parent.exists()
    new.mkdir(parents=True)
    assert preflight(config(settings(new))) == []


async def test_beside_the_running_node_its_ports_are_left_alone(used: Path) -> None:
    running = config(settings(used))
    async with NodeServer(running):
        [note] = preflight(running)
    assert f"has {used} open" in note


async def test_beside_another_node_its_directory_is_refused(used: Path) -> None:
    async with NodeServer(config(settings(used))):
        with pytest.raises(ForeignFormatError, match="belongs to node 1"):
            preflight(config(settings(used, node=2)))


@needs_openssl
async def test_a_certificate_that_keeps_others_away_is_noted_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crt, key = certificate(tmp_path, "elsewhere")
    files = f'certificate = "{crt}"\nkey = "{key}"\nauthority = "{crt}"'
    text = settings(tmp_path / "node", more=f"[security]\n{files}")
    assert preflight(config(text)) == []  # Nobody else is there to connect.
    text = text.replace("voters = {", 'voters = { 2 = "127.0.0.1:7402",')
    [note] = preflight(config(text))
    assert "certificate is not valid for '127.0.0.1'" in note
    async with NodeServer(config(text)):
        assert note in caplog.messages


async def test_what_keeps_a_node_out_of_its_cluster_is_noted(
    used: Path, tmp_path: Path
) -> None:
    (tmp_path / "tokens.toml").write_text("")
    voters = '2 = "127.0.0.1:7402", 1 = "127.0.0.1:7401"'
    text = settings(used, more=f'[security]\ntokens = "{tmp_path}/tokens.toml"')
    head, _, tail = text.partition("voters = {")
    text = f"{head}voters = {{ {voters} }}{tail.partition('}')[2]}"
    missing, elsewhere = preflight(config(text))
    assert "peer_token is missing" in missing
    assert "voters.1 = '127.0.0.1:7401' differs from" in elsewhere


def test_two_things_at_one_address(tmp_path: Path) -> None:
    text = settings(tmp_path, "127.0.0.1:7400").replace(
        "[cluster]", 'http = "127.0.0.1:7400"\n[cluster]'
    )
    with pytest.raises(LogError, match=r"\[node\] http"):
        config(text)
    config(text.replace("7400", "0"))  # Each gets a port of its own.


@needs_disks
async def test_a_new_directory_on_a_full_disk_is_refused_as_by_a_start(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        disk = Disk(tmp_path / "small", 1 << 20, stack)
        small = config(settings(tmp_path / "small" / "data"))
        with pytest.raises(UnavailableError, match=r"has \d+ bytes free"):
            preflight(small)
        assert contents(tmp_path) == {}
        disk.fill()
        with pytest.raises(LogError):
            await NodeServer(small).__aenter__()


@needs_disks
async def test_a_full_disk_is_noted_where_a_node_would_start(tmp_path: Path) -> None:
    with ExitStack() as stack:
        disk = Disk(tmp_path / "small", 8 << 20, stack)
        small = config(settings(tmp_path / "small" / "data"))
        async with NodeServer(small):
            pass
        disk.fill()
        [note] = preflight(small)
        assert "has 0 bytes free" in note
        async with NodeServer(small):
            pass
