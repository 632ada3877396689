"""Options and fixtures that every test may use."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--wheel", type=Path, help="directory of the wheel that test_wheel.py installs"
    )
