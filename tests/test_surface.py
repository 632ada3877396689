"""What the package offers is what it says it offers."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import braidlog
from braidlog.wire.error_codes import ERRORS

# Needs an extra; its own tests import it.
OPTIONAL = ("braidlog.spark", "braidlog.pipelines")
# What users import beside packages.
MODULES = ("braidlog.errors", "braidlog.types")


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


def wrong(module: ModuleType) -> Iterator[str]:
    """Say what is wrong with the `__all__` of a module that users import.

    Elsewhere an underscore says what is private.
    """
    if "__all__" not in vars(module):
        imported = hasattr(module, "__path__") or module.__name__ in MODULES
        for name, value in vars(module).items():
            if imported and public(name, value):
                yield f"{name} is public, and there is no __all__"
        return
    names: list[str] = module.__all__
    if names != sorted(names, key=rank):
        yield f"__all__ is not {sorted(names, key=rank)}"
    yield from (f"there is no {name}" for name in names if not hasattr(module, name))


def test_all_is_sorted_and_exists() -> None:
    names = modules()
    assert len(names) > 100
    found = {name: list(wrong(importlib.import_module(name))) for name in names}
    assert {name: text for name, text in found.items() if text} == {}


def test_what_is_wrong_with_a_module_is_found() -> None:
    module = ModuleType("made")
    module.f = rank  # type: ignore[attr-defined]
    assert list(wrong(module)) == []
    module.__path__ = []
    assert list(wrong(module)) == ["f is public, and there is no __all__"]
    module.__all__ = ["f", "A"]  # type: ignore[attr-defined]
    assert list(wrong(module)) == ["__all__ is not ['A', 'f']", "there is no A"]


def test_the_package_offers_nothing_it_does_not_name() -> None:
    offered = {name for name, value in vars(braidlog).items() if public(name, value)}
    assert offered <= set(braidlog.__all__)


def codes(path: Path) -> Iterator[tuple[int, str]]:
    """Yield code and name of each class of a file that has a code of its own."""
    for kind in ast.walk(ast.parse(path.read_text())):
        for line in kind.body if isinstance(kind, ast.ClassDef) else ():
            match line:
                case (
                    ast.Assign(
                        targets=[ast.Name("code")], value=ast.Constant(int(code))
                    )
                    | ast.AnnAssign(
                        target=ast.Name("code"), value=ast.Constant(int(code))
                    )
                ):
                    assert isinstance(kind, ast.ClassDef)
                    yield code, kind.name


def test_every_error_with_a_code_is_registered() -> None:
    root = Path(braidlog.__file__).parent
    found = sorted(
        (
            code,
            ".".join(path.relative_to(root.parent).with_suffix("").parts) + f":{name}",
        )
        for path in root.rglob("*.py")
        for code, name in codes(path)
    )
    assert found == sorted(ERRORS.items())
