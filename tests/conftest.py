"""Options and fixtures that every test may use."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

import guard
from order import group, rank

# Seconds for a soak that names no `timeout` of its own.
SOAK_SECONDS = 1800


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--wheel", type=Path, help="directory of the wheel that test_wheel.py installs"
    )


def pytest_configure() -> None:
    # Asked for the loop before there was one, as pytest-asyncio does for the first
    # async test, asyncio makes one that nobody closes; a later test is blamed for it.
    asyncio.set_event_loop(None)
    # Who starts this in the background may let it ignore them, and so all it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    guard.start()


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave soaks out, unless `-m` speaks of them."""
    soaks = [item for item in items if item.get_closest_marker("soak")]
    for item in soaks:
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SOAK_SECONDS))
    # Not in addopts: there another `-m` would replace it, and run them all.
    if soaks and "soak" not in config.option.markexpr:
        config.hook.pytest_deselected(items=soaks)
        items[:] = [item for item in items if item not in soaks]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let `--dist loadfile` follow `order`: what is run together, and what first."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group(str(super()._split_scope(nodeid)))

        def _assign_work_unit(self, node: Any) -> None:
            self.workqueue.move_to_end(min(self.workqueue, key=rank), last=False)
            super()._assign_work_unit(node)

    return Scheduling(config, log)
