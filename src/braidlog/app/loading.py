"""Applications by their names, ``module:attribute``, for commands and workers."""

from __future__ import annotations

import importlib
import sys

from braidlog.app.application import Application
from braidlog.errors import InvalidArgumentError, NotFoundError, UnavailableError


def load_application(name: str, *, path: str = "") -> Application:
    """Return the application that ``module:attribute`` names.

    ``path`` is where modules are looked for first.

    Raises:
        InvalidArgumentError: this is no such name.
        UnavailableError: there is no such module where this process looks.
        NotFoundError: the module has no such application.
        ModuleNotFoundError: the module needs another one, which is not there.
    """
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise InvalidArgumentError(
            f"{name!r} does not name an application: write MODULE:APP, for "
            "example shop.orders:app"
        )
    if path and path not in sys.path:
        sys.path.insert(0, path)
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise UnavailableError(f"there is no module {module!r}") from None
    if not isinstance(found, Application):
        raise NotFoundError(f"{module} has no application {attribute!r}")
    return found
