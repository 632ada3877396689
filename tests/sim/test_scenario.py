"""Whole runs: a seed is one trace, right code passes, planted bugs do not."""

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from sim.errors import ViolationError
from sim.faults import STORMS, Storm
from sim.register import Bug, RegisterScenario
from sim.scenario import Outcome, run_seed
from sim.world import Life, World

from sim import __main__ as command

ROOT = Path(__file__).parents[2]


def run(seed: int, storm: str, bug: Bug = Bug.NONE) -> Outcome:
    return run_seed("register", lambda: RegisterScenario(bug), seed, STORMS[storm])


@pytest.mark.parametrize("storm", STORMS)
def test_a_seed_run_twice_gives_the_same_trace(storm: str) -> None:
    traces = [io.StringIO(), io.StringIO()]
    chosen = replace(STORMS[storm], seconds=10.0)
    outcomes = [
        run_seed("register", RegisterScenario, 1, chosen, out=trace) for trace in traces
    ]
    assert outcomes[0].passed, outcomes[0].error
    assert outcomes[0] == outcomes[1]
    assert traces[0].getvalue() == traces[1].getvalue() != ""


def test_other_seeds_are_other_runs_and_all_are_linearizable() -> None:
    outcomes = [run(seed, "all") for seed in range(6)]
    assert [outcome.error for outcome in outcomes] == [""] * 6
    assert len({outcome.digest for outcome in outcomes}) == 6


@pytest.mark.parametrize(
    ("bug", "storm", "seed"),
    [
        (Bug.NO_WRITE_BACK, "disks", 5),
        (Bug.NO_SYNC, "crashes", 0),
        (Bug.NO_QUORUM, "partitions", 0),
    ],
)
def test_a_planted_bug_is_found(bug: Bug, storm: str, seed: int) -> None:
    """The seed was found by trying; another version of Python may need another."""
    for tried in [seed, *range(60)]:
        outcome = run(tried, storm, bug)
        if not outcome.passed:
            break
    assert "no order explains the reads" in outcome.error
    assert outcome.tail
    assert run(tried, storm).passed


class Wrong:
    """A scenario of one node that is wrong in a chosen way."""

    def __init__(self, how: str) -> None:
        self.how = how

    def build(self, world: World, storm: Storm) -> None:
        async def node(life: Life) -> None:
            await asyncio.sleep(3)
            if self.how == "node fails":
                raise KeyError("planted")
            await asyncio.Event().wait()

        world.start("n", node)

    def targets(self) -> Sequence[str]:
        return ["n"]

    def groups(self) -> Sequence[Sequence[str]]:
        return []

    def rot(self, random: Random) -> bool:
        return False

    def others(self) -> Sequence[str]:
        return []

    async def begun(self) -> None:
        pass

    async def workload(self, world: World) -> None:
        if self.how == "workload fails":
            raise LookupError("planted")
        if self.how == "never at rest":
            await asyncio.Event().wait()
        if self.how == "goes on for ever":
            while True:  # noqa: ASYNC110
                await asyncio.sleep(1)

    def check(self, world: World) -> None:
        if self.how == "check fails":
            raise ViolationError("planted")


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("node fails", "UnhandledError: n ended"),
        ("workload fails", "LookupError: planted"),
        ("never at rest", "DeadlockError"),
        ("goes on for ever", "LivelockError: not done at 310"),
        ("check fails", "ViolationError: planted"),
    ],
)
def test_every_way_to_fail_is_an_outcome(how: str, error: str) -> None:
    outcome = run_seed("wrong", lambda: Wrong(how), 1, STORMS["calm"])
    assert error in outcome.error
    assert "failed" in outcome.tail[-1]
    assert run_seed("wrong", lambda: Wrong("not"), 1, STORMS["calm"]).passed


def test_the_command_runs_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        command.main(
            [
                "--scenario",
                "register",
                "--seed",
                "3",
                "--count",
                "2",
                "--seconds",
                "5",
                "--twice",
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[:2]] == [
        ["ok", "seed", "3"],
        ["ok", "seed", "4"],
    ]
    assert lines[-1] == "2 seeds, 0 failed"


def test_the_command_says_how_to_run_a_failure_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"broken": lambda: RegisterScenario(Bug.NO_QUORUM)}
    monkeypatch.setattr(command, "SCENARIOS", broken)
    options = [
        "--seed",
        "0",
        "--count",
        "3",
        "--storm",
        "partitions",
    ]
    assert command.main(options) == 1
    out = capsys.readouterr().out
    again = "again: python -m sim --seed 0 --scenario broken --storm partitions"
    assert again in out.splitlines()
    assert "FAILED seed 0" in out
    assert "no order explains" in out
    assert out.splitlines()[-1] == "1 seeds, 1 failed"
    assert command.main([*options, "--keep-going"]) == 1
    assert "3 seeds" in capsys.readouterr().out


def test_the_command_refuses_what_makes_no_sense() -> None:
    for options in (
        ["--count", "0"],
        ["--jobs", "0"],
        ["--count", "2", "--trace", "x"],
    ):
        with pytest.raises(SystemExit):
            command.main(options)


@pytest.mark.process
def test_processes_with_other_hashes_give_the_same_trace(tmp_path: Path) -> None:
    """The command fixes the hashes of strings itself, whatever the environment says."""
    written = []
    for number, hashes in enumerate(("random", "123")):
        trace = tmp_path / str(number)
        options = [
            "--scenario",
            "register",
            "--seed",
            "5",
            "--storm",
            "all",
            "--trace",
            str(trace),
        ]
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        process = [sys.executable, "-m", "sim", *options]
        done = subprocess.run(
            process, cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        written.append((trace.read_bytes(), done.stdout))
    assert written[0] == written[1]
    jobs = [
        sys.executable,
        "-m",
        "sim",
        "--scenario",
        "register",
        "--count",
        "2",
        "--jobs",
        "2",
    ]
    done = subprocess.run(jobs, cwd=ROOT, check=True, capture_output=True, text=True)
    assert "2 seeds, 0 failed" in done.stdout
