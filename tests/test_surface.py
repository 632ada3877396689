"""What the package offers is what it says it offers."""

import importlib
import pkgutil
from types import ModuleType

import pytest

import braidlog

# Needs an extra; its own tests import it.
OPTIONAL = ("braidlog.spark", "braidlog.pipelines", "braidlog.demo")


def modules() -> list[str]:
    found = [m.name for m in pkgutil.walk_packages(braidlog.__path__, "braidlog.")]
    hidden = ("braidlog.__main__", "braidlog._native")
    return ["braidlog"] + [
        name for name in found if not name.startswith(hidden + OPTIONAL)
    ]


def rank(name: str) -> tuple[int, str]:
    """Sort constants before classes before functions, as ruff does."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def public(name: str, value: object) -> bool:
    return not name.startswith("_") and not isinstance(value, ModuleType)


@pytest.fixture(params=modules())
def module(request: pytest.FixtureRequest) -> ModuleType:
    return importlib.import_module(request.param)


def test_all_is_sorted_and_exists(module: ModuleType) -> None:
    if "__all__" not in vars(module):
        assert [
            name for name, value in vars(module).items() if public(name, value)
        ] == []
        return
    names: list[str] = module.__all__
    assert names == sorted(names, key=rank)
    assert [name for name in names if not hasattr(module, name)] == []


def test_the_package_offers_nothing_it_does_not_name() -> None:
    offered = {name for name, value in vars(braidlog).items() if public(name, value)}
    assert offered <= set(braidlog.__all__)
