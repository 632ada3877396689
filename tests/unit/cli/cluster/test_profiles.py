"""Settings of the nodes of `braidlog up`, and its ports."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from braidlog.cli.cluster.profiles import PROFILES, Ports, node_settings
from braidlog.errors import InvalidArgumentError
from braidlog.node.config import parse
from braidlog.testing.cluster import LocalCluster


@pytest.mark.parametrize("profile", PROFILES)
def test_nodes_accept_each_profile(tmp_path: Path, profile: str) -> None:
    settings = node_settings(profile, None, None)
    cluster = LocalCluster(3, directory=tmp_path, settings=settings)
    found = parse(cluster.settings_file(2).read_text(), {})
    for section, values in PROFILES[profile].items():
        for name, value in values.items():
            assert getattr(getattr(found, section), name) == value


def test_a_file_goes_before_the_profile_and_an_option_before_both(
    tmp_path: Path,
) -> None:
    file = tmp_path / "all.toml"
    file.write_text(
        "[timing]\nfailure_ms = 9000\n[limits]\nscrub_bytes = 0\n"
        '[log]\nlevel = "error"\n'
    )
    assert node_settings("patient", file, "debug") == {
        "timing": PROFILES["patient"]["timing"] | {"failure_ms": 9000},
        "log": {"level": "debug"},
        "limits": {"scrub_bytes": 0},
    }
    assert PROFILES["patient"]["timing"]["failure_ms"] == 3000


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[node]\nid = 7\n", r"leave \[node\] out"),
        ('[cluster]\nname = "x"\n', r"leave \[cluster\] out"),
        ("failure_ms = 7\n", "'failure_ms' is in no section"),
        ("[timing\n", "all.toml: "),
    ],
)
def test_what_is_no_setting_for_all_is_refused(
    tmp_path: Path, text: str, match: str
) -> None:
    file = tmp_path / "all.toml"
    file.write_text(text)
    with pytest.raises(InvalidArgumentError, match=match):
        node_settings("default", file, None)


def test_the_first_port_or_all() -> None:
    convert = Ports().convert
    assert Ports.of_nodes(convert("7400", None, None), 2) == (7400, 7401, 7402, 7403)
    four = convert("7400, 8400,7500,8500", None, None)
    assert Ports.of_nodes(four, 2) == (7400, 8400, 7500, 8500)
    assert Ports.of_nodes((), 2) == ()
    with pytest.raises(InvalidArgumentError, match="3 nodes need 6 ports, not 4"):
        Ports.of_nodes(four, 3)
    with pytest.raises(InvalidArgumentError, match="end beyond 65535"):
        Ports.of_nodes((65534,), 2)
    for text in ("", "0", "70000", "x", "1,2,3", "7,7"):
        with pytest.raises(click.BadParameter):
            convert(text, None, None)
