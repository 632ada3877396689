"""The seam between the simulation and what is simulated, and the run of one seed.

A scenario builds nodes in a world, loads them, and says at the end whether all was in
order. The runner adds the storm, the quiet behind it, and bounds on everything.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol, TextIO

from sim.errors import SimulationError
from sim.faults import STORMS, Nemesis, Storm
from sim.trace import Trace
from sim.world import World

__all__ = ["Outcome", "Scenario", "ScenarioFactory", "repeat_command", "run_seed"]

# Virtual seconds after the storm in which everything has to come to rest.
_REST_S = 300.0
_STEPS_MAX = 20_000_000


class Scenario(Protocol):
    """One application with its load and its rules. A new one is made for each seed."""

    def build(self, world: World, storm: Storm) -> None:
        """Start the nodes for a storm; time has not begun."""

    def targets(self) -> Sequence[str]:
        """Return the nodes that may be killed, paused and given bad disks."""

    def others(self) -> Sequence[str]:
        """Return the hosts, as those of clients, of which only the links may break."""

    def groups(self) -> Sequence[Sequence[str]]:
        """Return nodes that hold the same: what all of a group lose is lost."""

    def rot(self, random: Random) -> bool:
        """Damage what one disk has and others have too; False if that cannot be."""

    async def begun(self) -> None:
        """Wait until faults may begin."""

    async def workload(self, world: World) -> None:
        """Load the nodes, during the storm and after it, until all is answered.

        It runs beside the nodes, as the world. `world.calm` is set when the faults are
        over. Raise `ViolationError` for what cannot be.
        """

    def check(self, world: World) -> None:
        """Judge the whole history.

        Raises:
            ViolationError: it breaks a promise.
        """


ScenarioFactory = Callable[[], Scenario]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run of one seed ended."""

    scenario: str
    seed: int
    storm: str
    # Of the whole run: equal for equal runs.
    digest: str
    virtual_s: float
    faults: Mapping[str, int] = field(default_factory=dict)
    # Empty when all was in order.
    error: str = ""
    tail: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Return whether all was in order."""
        return not self.error


def repeat_command(scenario: str, seed: int, storm: str) -> str:
    """Return the command that runs a seed again."""
    return f"python -m sim --seed {seed} --scenario {scenario} --storm {storm}"


def run_seed(
    name: str,
    factory: ScenarioFactory,
    seed: int,
    storm: Storm | None = None,
    *,
    out: TextIO | None = None,
    lines_max: int = 60,
) -> Outcome:
    """Run one seed and return how it ended; only a broken simulation raises."""
    storm = storm or STORMS["all"]
    trace = Trace(lines_max, out)
    scenario = factory()
    error = ""
    with World(seed, trace=trace) as world:
        world.loop.time_max = storm.seconds + _REST_S
        world.loop.steps_max = _STEPS_MAX
        nemesis: Nemesis | None = None
        try:
            scenario.build(world, storm)
            others = scenario.others()
            targets = scenario.targets()
            nemesis = Nemesis(
                world, targets, storm, others, scenario.groups, scenario.rot
            )
            world.run(_run(scenario, world, nemesis))
            scenario.check(world)
        except SimulationError as failure:
            error = _text(failure)
        except Exception as failure:
            # Raised by the workload: a bug of it, or a promise that it saw broken.
            error = _text(failure)
        if error:
            world.note("world", f"failed: {error.splitlines()[0]}")
        outcome = Outcome(
            scenario=name,
            seed=seed,
            storm=storm.name,
            digest=trace.digest(),
            virtual_s=world.now,
            faults=dict(nemesis.applied) if nemesis else {},
            error=error,
        )
    return replace(outcome, tail=tuple(trace.tail())) if error else outcome


async def _run(scenario: Scenario, world: World, nemesis: Nemesis) -> None:
    storm = asyncio.create_task(_storm(scenario, nemesis), name="nemesis")

    def passed(_: object) -> None:
        if not storm.cancelled() and (error := storm.exception()) is not None:
            world.loop.fail("the nemesis ended", error)  # Nobody would ever be calm.

    storm.add_done_callback(passed)
    await scenario.workload(world)
    await storm


async def _storm(scenario: Scenario, nemesis: Nemesis) -> None:
    await scenario.begun()
    await nemesis.run()


def _text(error: BaseException) -> str:
    if isinstance(error, SimulationError) and error.__cause__ is None:
        return f"{type(error).__name__}: {error}"
    if isinstance(error, SimulationError):
        cause = "".join(traceback.format_exception(error.__cause__))
        return f"{type(error).__name__}: {error}\n{cause}"
    return "".join(traceback.format_exception(error))
