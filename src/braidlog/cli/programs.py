"""Applications of programs: from ``module:name`` to the object."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from braidlog.cli.failures import NOT_FOUND, USAGE, Problem

if TYPE_CHECKING:
    from braidlog.app import Application

__all__ = ["load"]


def load(text: str) -> Application:
    """Import an application, also from the directory that the command runs in.

    Raises:
        Problem: There is no such module, or it has no such application.
    """
    from braidlog.app import Application

    module, _, name = text.partition(":")
    if not module or not name:
        raise Problem(
            f"{text!r} names no application", "write MODULE:NAME, as bank:bank", USAGE
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        raise Problem(
            f"the program {module!r} cannot be imported: {error}",
            "run it where the module is, or set PYTHONPATH",
            NOT_FOUND,
        ) from error
    if not isinstance(found, Application):
        raise Problem(
            f"{module!r} has no application {name!r}",
            "name the variable that holds it: MODULE:NAME",
            NOT_FOUND,
        )
    return found
