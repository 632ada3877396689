"""`braidlog cluster reload` and SIGHUP, on nodes that are processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.errors import UnauthorizedError
from braidlog.testing.cluster import LocalCluster
from braidlog.wire.roles import Role
from braidlog.wire.tokens import make_token, token_entry
from unit.node.test_reload import make_certificate

pytestmark = [
    pytest.mark.process,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        not shutil.which("openssl"), reason="openssl makes the certificates"
    ),
]
ROLES = {"nodes": Role.PEER, "ops": Role.ADMIN, "writer": Role.APPEND}
MADE = {
    name: make_token(name, role, bytes([number]) * 32)
    for number, (name, role) in enumerate(ROLES.items())
}
TEXTS = {name: text for name, (text, _) in MADE.items()}


class Running:
    """A cluster with TLS and tokens, whose files a test changes."""

    def __init__(self, directory: Path, nodes: int) -> None:
        self.directory = directory
        self.tokens = directory / "tokens.toml"
        self.write(*ROLES)
        (directory / "peer.token").write_text(TEXTS["nodes"])
        make_certificate(directory, "node")
        self.trusted = directory / "node.crt"
        names = {"certificate": "node.crt", "key": "node.key", "authority": "node.crt"}
        names |= {"tokens": "tokens.toml", "peer_token": "peer.token"}
        security = {name: str(directory / file) for name, file in names.items()}
        self.cluster = LocalCluster(
            nodes, directory=directory / "c", settings={"security": security}
        )

    def write(self, *names: str) -> None:
        self.tokens.write_text("\n".join(token_entry(MADE[name][1]) for name in names))

    def client(self, name: str) -> braidlog.client.Client:
        context = ssl.create_default_context(cafile=str(self.trusted))
        return braidlog.connect(self.cluster.seeds, ssl=context, token=TEXTS[name])

    def reload(self, *more: str, code: int = 0) -> list[dict[str, Any]]:
        result = subprocess.run(
            [sys.executable, "-m", "braidlog", "cluster", "reload", "--json", *more],
            env=os.environ
            | {"BRAIDLOG_CLUSTER": self.cluster.seeds, "BRAIDLOG_TOKEN": TEXTS["ops"]}
            | {"BRAIDLOG_TLS_CA": str(self.trusted)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert result.returncode == code, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]

    def said(self, event: str, node: int = 1) -> list[dict[str, Any]]:
        lines = map(json.loads, self.cluster.output(node).read_text().splitlines())
        return [line for line in lines if line.get("event") == event]

    def hang_up(self, event: str) -> dict[str, Any]:
        """Send SIGHUP to node 1, and return what it says of that."""
        before = len(self.said(event))
        self.cluster.send(1, signal.SIGHUP)
        _until(lambda: len(self.said(event)) > before)
        return self.said(event)[-1]


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_sighup(tmp_path: Path) -> None:
    running = Running(tmp_path, 1)
    with running.cluster, running.client("writer") as writer:
        with running.client("ops") as ops:
            ops.create_log("orders")
        log = writer.log("orders")
        assert log.append(b"x") == 1
        pid = running.cluster.pid(1)
        assert running.hang_up("settings_reloaded")["changed"] == ""
        # A certificate that nobody signed before, while a connection is open.
        make_certificate(tmp_path, "next")
        (tmp_path / "next.crt").replace(tmp_path / "node.crt")
        refused = running.hang_up("reload_refused")
        assert "the key does not belong to the certificate" in refused["reason"]
        (tmp_path / "next.key").replace(tmp_path / "node.key")
        done = running.hang_up("settings_reloaded")
        assert "[security] certificate; [security] key" in done["changed"]
        assert log.append(b"y") == 2
        with running.client("ops") as ops:
            assert ops.logs() == ["orders"]
        running.write("nodes", "ops")
        assert running.hang_up("settings_reloaded")["closed"] > 0
        with pytest.raises(UnauthorizedError):
            log.append(b"z")
        file = running.cluster.settings_file(1)
        text = file.read_text()
        level = text.replace("[security]", '[log]\nlevel = "debug"\n[security]')
        file.write_text(level.replace("[node]", "[node]\n", 1))
        assert running.hang_up("settings_reloaded")["changed"] == "[log] level: debug"
        file.write_text(text.replace("[security]", "[limits\n[security]"))
        assert "settings" in running.hang_up("reload_refused")["message"]
        # It is the same process, with as many descriptors as its connections need.
        open_files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        file.write_text(level)
        for _ in range(20):
            running.hang_up("settings_reloaded")
        assert running.cluster.pid(1) == pid
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) <= open_files + 2


def test_cluster_reload(tmp_path: Path) -> None:
    running = Running(tmp_path, 3)
    with running.cluster:
        with running.client("ops") as ops:
            ops.create_log("orders", replication=3)
        rows = running.reload()
        assert [row["node"] for row in rows] == [1, 2, 3]
        nothing = {"reloaded": True, "changed": [], "needs_restart": [], "error": ""}
        assert all(row.items() >= nothing.items() for row in rows)
        running.write("nodes", "ops")
        file = running.cluster.settings_file(2)
        text = file.read_text()
        file.write_text(f"{text}\n[limits]\nconnections_max = 9\n")
        removed = ["[security] tokens: removed writer"]
        [row] = running.reload("--node", "2")
        assert row["changed"] == removed
        assert row["needs_restart"] == ["[limits] connections_max"]
        file.write_text("broken")
        one, two, three = running.reload(code=1)
        assert one["changed"] == three["changed"] == removed
        assert not two["reloaded"]
        assert str(file) in two["error"]
        file.write_text(text)
        running.cluster.kill(3)
        rows = running.reload(code=1)
        assert [row["reloaded"] for row in rows] == [True, True, False]
        assert "node 7" in running.reload("--node", "7", code=1)[0]["error"]
