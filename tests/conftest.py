"""Options and fixtures that every test may use."""

from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--wheel", type=Path, help="directory of the wheel that test_wheel.py installs"
    )


# They begin first: else one process is busy with them when the others are done.
_SPARK = "tests/spark/"
_LONGEST = (_SPARK, "tests/docs/test_code.py", "tests/sim/test_applications.py")


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
            if nodeid.startswith(_SPARK):
                return _SPARK
            return str(super()._split_scope(nodeid))

        def _assign_work_unit(self, node: Any) -> None:
            longest = next((each for each in _LONGEST if each in self.workqueue), None)
            if longest is not None:
                self.workqueue.move_to_end(longest, last=False)
            super()._assign_work_unit(node)

    return Scheduling(config, log)
