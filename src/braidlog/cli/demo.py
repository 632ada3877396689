"""``braidlog demo``: starts the demonstration of a checkout.

It is an example, `examples/demo`, and so no part of an installed package.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import cast

import click

import braidlog
from braidlog.cli.command.failures import Problem


def demo_of(package: Path) -> click.Command:
    """Return the demonstration of the checkout that a package directory is in.

    Outside a checkout it is a command that says where the demonstration is.
    """
    root = package.resolve().parents[1]
    if (root / "examples" / "demo" / "command.py").is_file():
        if str(root) not in sys.path:
            # In front: somebody else's package may be called `examples`, too.
            sys.path.insert(0, str(root))
        return cast("click.Command", import_module("examples.demo.command").demo)
    return _elsewhere


@click.command("demo", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def _elsewhere(arguments: tuple[str, ...]) -> None:
    """Run the main job on real input, in a checkout of the sources."""
    raise Problem(
        "the demonstration is not part of the installed package: it is the folder"
        " examples/demo of the sources",
        "run `make demo` in a checkout of the sources",
    )


demo = demo_of(Path(braidlog.__file__).parent)
