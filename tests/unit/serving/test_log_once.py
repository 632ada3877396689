"""Trouble with connections is said once when it begins, and once at its end."""

from __future__ import annotations

import logging

import pytest

from braidlog.serving.log_once import Connections


@pytest.fixture
def connections(caplog: pytest.LogCaptureFixture) -> Connections:
    caplog.set_level(logging.INFO, "connections")
    return Connections(logging.getLogger("connections"))


def test_a_connection_that_fails_again_and_again_is_said_once(
    connections: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    connections.works("node 2")
    for _ in range(3):
        connections.fails("node 2", "no such token")
        connections.fails("node 3", "no such token")
    connections.fails("node 2", "no TLS")
    connections.fails("node 2", "no such token")
    for _ in range(2):
        connections.works("node 2")
    connections.fails("node 2", "no such token")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "node 2: no such token"),
        ("WARNING", "node 3: no such token"),
        ("WARNING", "node 2: no TLS"),
        ("INFO", "node 2: the connection works again"),
        ("WARNING", "node 2: no such token"),
    ]


def test_connections_that_always_fail_otherwise_are_not_said_for_ever(
    connections: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        connections.fails("node 2", f"byte {number}")
    assert len(caplog.records) == 8
    for number in range(5000):
        connections.fails(f"10.0.0.{number}", "no such token")
    assert len(connections._told) <= 1024
