from pathlib import Path

import pytest

from unit.cli.conftest import Cli


@pytest.mark.slow
def test_bench_measures_and_leaves_nothing(cli: Cli, tmp_path: Path) -> None:
    found = cli.json("bench", "--seconds", "0.02", "--directory", str(tmp_path))
    assert len(found) == 5
    assert all(row["value"] > 0 for row in found)
    assert list(tmp_path.glob("braidlog-bench-*")) == []


@pytest.mark.parametrize(
    "options",
    [["--input", __file__], ["--git", ".", "--input", __file__, "--oracle", __file__]],
)
def test_demo_refuses_inputs_that_do_not_go_together(
    cli: Cli, options: list[str]
) -> None:
    cli.run("demo", *options, code=2)
