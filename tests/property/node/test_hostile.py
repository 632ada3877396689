"""Clients of every role send what they like: no node ends, and others are served.

`tests/property/node/hostile.py` says how, and runs longer by hand.
"""

from pathlib import Path

import pytest

from property.node.hostile import harm


@pytest.mark.timeout(90)
async def test_whatever_clients_send_the_nodes_go_on(tmp_path: Path) -> None:
    appended, sent, answered = await harm(tmp_path, seed=1, seconds=4)
    assert appended
    assert min(sent.values()) > 10
    assert {"Metadata", "UnauthorizedError", "InvalidArgumentError"} <= set(answered)


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_whatever_clients_send_for_minutes_the_nodes_go_on(
    tmp_path: Path,
) -> None:
    for seed in range(2, 6):
        directory = tmp_path / str(seed)
        directory.mkdir()
        appended, *_ = await harm(directory, seed=seed, seconds=120)
        assert appended
