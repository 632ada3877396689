"""Settings are read, overridden, and refused with the name of what is wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidlog import _native
from braidlog.errors import InvalidArgumentError
from braidlog.node.config import (
    LimitSettings,
    NodeConfig,
    load,
    parse,
)
from braidlog.serving.settings import host_and_port
from braidlog.store.node_store import NodeStore

ALONE = '[node]\nid = 1\ndata = "/data"\n'
SMALL = '[cluster.voters]\n1 = "a:1"\n' + ALONE


def test_defaults() -> None:
    config = parse(SMALL, {})
    assert config.node.id == 1
    assert config.advertise == config.node.listen == "127.0.0.1:7400"
    assert config.timing.failure_ms == 500


def test_the_environment_wins() -> None:
    environment = {
        "BRAIDLOG_NODE_LISTEN": "127.0.0.1:9",
        "BRAIDLOG_TIMING_HEARTBEAT_MS": "50",
        "BRAIDLOG_CLUSTER_VOTERS": "1=a:1,2=b:2",
        "BRAIDLOG_SECURITY_INSECURE": "true",
        "BRAIDLOG_LOG_LEVEL": "warning",
        "BRAIDLOG_OTHER_THING": "1",
        "HOME": "/",
    }
    config = parse(SMALL, environment)
    assert config.node.listen == "127.0.0.1:9"
    assert config.timing.heartbeat_ms == 50
    assert config.cluster.voters == {1: "a:1", 2: "b:2"}
    assert config.security.insecure
    assert config.log.level == "warning"


def test_who_says_the_directory() -> None:
    """The option, the node's own variable, the file, and `BRAIDLOG_DATA` at last."""
    everywhere, own = {"BRAIDLOG_DATA": "/every"}, {"BRAIDLOG_NODE_DATA": "/own"}
    nowhere = SMALL.replace('data = "/data"\n', "")
    assert parse(nowhere, everywhere).node.data == "/every"
    assert parse(nowhere, everywhere | own).node.data == "/own"
    assert parse(SMALL, own).node.data == "/own"
    assert parse(SMALL, everywhere | own).node.data == "/own"
    assert parse(SMALL, everywhere | own, data="/said").node.data == "/said"
    assert parse(SMALL, everywhere, data="/said").node.data == "/said"
    assert parse(SMALL, {"BRAIDLOG_DATA": "/data/../data/"}).node.data == "/data"
    with pytest.raises(InvalidArgumentError) as caught:
        parse(SMALL, everywhere)
    for word in ("BRAIDLOG_DATA names /every", "[node] data names /data", "--data"):
        assert word in caught.value.message


def test_voters_of_a_file() -> None:
    config = parse(ALONE + '[cluster]\nvoters = { 1 = "a:1", 2 = "b:2" }\n', {})
    assert config.cluster.voters == {1: "a:1", 2: "b:2"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "[node] id"),
        ("[node]\nid = 1\n", "[node] data"),
        ("[nods]\n", "section 'nods' does not exist; did you mean 'node'?"),
        ("node = 1\n", "[node] must be a section"),
        (SMALL + "[limits]\nconnections_max = 0\n", "[limits] connections_max"),
        (SMALL + "[limits]\nframe_bytes_max = 4194304\n", "[limits] frame_bytes_max"),
        (SMALL + "[limits]\nfetch_bytes_max = 33554432\n", "at least 34603008"),
        (SMALL + "[limits]\nwindow_bytes = 16777216\n", "[limits] window_bytes"),
        (SMALL + "[limits]\nwal_ready_bytes = -1\n", "[limits] wal_ready_bytes"),
        ("[node\n", "line 1"),
        (SMALL + "listn = 1\n", "[node]: setting 'listn' does not exist; did you mean"),
        (SMALL + "listen = 7400\n", "[node] listen must be text"),
        (SMALL.replace("1", "true"), "[node] id must be a number, got True"),
        (SMALL + 'listen = "7400"\n', "[node] listen: '7400' must be host:port"),
        (ALONE + '[cluster]\nvoters = { a = "b:1" }\n', "[cluster] voters"),
        (ALONE + '[cluster]\nvoters = { 1 = "b" }\n', "[cluster] voters.1"),
        (ALONE, "[cluster] voters is missing: name the first"),
        (ALONE + "[cluster]\nvoters = { }\n", '{ 1 = "127.0.0.1:7400" }'),
        (ALONE + '[cluster]\nvoters = { 1 = "b:1", 01 = "b:2" }\n', "twice: 1, 01"),
        (ALONE + '[cluster]\nvoters = "1=b:1,1=b:2"\n', "names a node twice: 1, 1"),
        (
            ALONE + '[cluster]\nvoters = "2=b:1,7=b:1"\n',
            "voters.7 = 'b:1' is also the addr",
        ),
        (SMALL + "[limits]\nsegment_bytes = 65537\n", "[limits] segment_bytes"),
        (SMALL + "[limits]\nsegment_bytes = 61440\n", "from 65536 to 2147483648"),
        (SMALL + "[limits]\nwal_bytes_max = 268435455\n", "at least 268435456"),
        (SMALL + "[timing]\nfailure_ms = 150\n", "[timing] failure_ms"),
        (SMALL + "[timing]\ntick_ms = 0\n", "[timing] all times"),
        (SMALL + "[timing]\nslow_ms = -1\n", "[timing] slow_ms"),
        (SMALL + "[timing]\nslow_after_ms = 200\n", "[timing] slow_after_ms"),
        (SMALL + "[timing]\nslow_back_ms = 1\n", "[timing] slow_after_ms and slow"),
        (SMALL + '[log]\nlevel = "loud"\n', "'loud' must be one of debug, info"),
        (SMALL + '[security]\nkey = "k"\n', "[security] certificate"),
    ],
)
def test_what_is_wrong_is_named(text: str, named: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse(text, {})
    assert named in caught.value.message


def test_a_variable_of_what_is_no_section() -> None:
    with pytest.raises(InvalidArgumentError, match="must be a section"):
        parse("node = 1\n", {"BRAIDLOG_NODE_ID": "1"})


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "example.org:1"])
@pytest.mark.parametrize("key", ["listen", "http"])
def test_nothing_is_exposed_by_accident(address: str, key: str) -> None:
    text = SMALL + f'{key} = "{address}"\n'
    with pytest.raises(InvalidArgumentError) as caught:
        parse(text, {})
    assert f"[node] {key} is reachable" in caught.value.message
    parse(text + "[security]\ninsecure = true\n", {})
    files = '[security]\ncertificate = "c"\nkey = "k"\n'
    with pytest.raises(InvalidArgumentError):
        parse(text + files, {})
    parse(text + files + 'tokens = "t"\n', {})


def test_loopback_needs_nothing() -> None:
    for address in ("127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:1"):
        assert isinstance(parse(SMALL + f'listen = "{address}"\n', {}), NodeConfig)


def test_hosts_of_version_6() -> None:
    assert host_and_port("[::1]:80") == ("::1", 80)


@pytest.mark.parametrize("segment_bytes", [1 << 20, 64 << 20, 1 << 30])
def test_a_snapshot_of_the_metadata_fits_a_segment_and_a_frame(
    segment_bytes: int,
) -> None:
    """Else a member that is behind could never be sent it."""
    limits = LimitSettings(segment_bytes=segment_bytes)
    assert 0 < limits.state_bytes_max < segment_bytes // 4
    assert limits.state_bytes_max + (1 << 20) <= limits.frame_bytes_max


@pytest.mark.parametrize(
    ("segment_bytes", "wal_bytes_max"),
    [(61_440, 1 << 20), (65_537, 1 << 20), (65_536, 262_143), (65_536, 262_144)],
)
def test_files_are_refused_as_the_core_does(
    segment_bytes: int, wal_bytes_max: int
) -> None:
    sizes: Any = {"segment_bytes": segment_bytes, "wal_bytes_max": wal_bytes_max}

    def refused(make: Callable[[], object]) -> bool:
        try:
            make()
        except InvalidArgumentError:
            return True
        return False

    disk = _native.MemoryDisk()
    by_core = refused(lambda: NodeStore("/n", entropy=1, disk=disk, **sizes))
    assert refused(lambda: LimitSettings(**sizes)) is by_core


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load(tmp_path / "node.toml", {})
    assert str(tmp_path) in caught.value.message


def test_the_cluster_that_clients_use_is_no_setting() -> None:
    environment = {"BRAIDLOG_CLUSTER": "n1:7400", "BRAIDLOG_NODE_ID": "3"}
    assert parse(SMALL.replace("id = 1", ""), environment).node.id == 3
