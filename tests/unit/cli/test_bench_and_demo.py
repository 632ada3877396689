from pathlib import Path

import pytest

from braidlog.cli.command.failures import Problem
from braidlog.cli.demo import demo, demo_of
from unit.cli.conftest import Cli


@pytest.mark.slow
def test_bench_measures_and_leaves_nothing(cli: Cli, tmp_path: Path) -> None:
    found = cli.json("bench", "--seconds", "0.02", "--directory", str(tmp_path))
    assert len(found) == 5
    assert {tuple(row) for row in found} == {
        ("workload", "records_per_second", "p50_us", "p99_us")
    }
    assert all(row["records_per_second"] > 0 for row in found)
    timed = [row for row in found if row["p50_us"] is not None]
    assert len(timed) == 4
    assert all(0 < row["p50_us"] <= row["p99_us"] for row in timed)
    assert sum("pipelined" in row["workload"] for row in found) == 1
    assert list(tmp_path.glob("braidlog-bench-*")) == []


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1"])
def test_bench_refuses_no_time(cli: Cli, tmp_path: Path, seconds: str) -> None:
    cli.run("bench", "--seconds", seconds, "--directory", str(tmp_path), code=2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [["--input", __file__], ["--git", ".", "--input", __file__, "--oracle", __file__]],
)
def test_demo_refuses_inputs_that_do_not_go_together(
    cli: Cli, options: list[str]
) -> None:
    cli.run("demo", *options, code=2)


def test_demo_says_where_it_is_outside_a_checkout(tmp_path: Path) -> None:
    """As an installed package is: nothing is beside it."""
    package = tmp_path / "site-packages" / "braidlog"
    package.mkdir(parents=True)
    with pytest.raises(Problem) as caught:
        demo_of(package)(["--nodes", "3"], standalone_mode=False)
    assert "examples/demo" in caught.value.failure.message
    assert "make demo" in caught.value.failure.hint


def test_demo_of_a_checkout_is_the_example() -> None:
    assert demo.callback is not None
    assert demo.callback.__module__ == "examples.demo.command"
