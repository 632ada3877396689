"""Options and fixtures that every test may use."""

from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--wheel", type=Path, help="directory of the wheel that test_wheel.py installs"
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give all files of `tests/spark` to one process of `--dist loadfile`.

    Each process that gets one starts a Java, Python workers and three nodes, which
    cost more than most of the tests.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            folder = "tests/spark/"
            if nodeid.startswith(folder):
                return folder
            return str(super()._split_scope(nodeid))

    return Scheduling(config, log)
