"""The options of a host's snapshots become settings; those not given stay as set."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from braidlog.app import SnapshotSettings
from braidlog.cli.marks import snapshot_options, take_settings


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], SnapshotSettings()),
        (
            ["--soft-bytes", "64MiB", "--hard-bytes", "1G", "--snapshots-kept", "3"],
            SnapshotSettings(soft_bytes=64 << 20, hard_bytes=1 << 30, kept=3),
        ),
        (
            ["--soft-seconds", "2", "--hard-seconds", "5", "--snapshots-min", "2"],
            SnapshotSettings(soft_seconds=2, hard_seconds=5, snapshots_min=2),
        ),
    ],
)
def test_options_become_settings(
    arguments: list[str], expected: SnapshotSettings
) -> None:
    found: list[SnapshotSettings] = []

    @click.command()
    @snapshot_options
    def command(**given: object) -> None:
        found.append(take_settings(given))
        assert not given

    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert found == [expected]
