"""What a path of this machine is: one place decides it, for every call and command.

A name with ``://`` is a URI, which the file system would take for a directory: data
would go to ``./s3:/bucket`` and nobody would find it again. A leading ``~`` is the home
directory, as in a shell, also where no shell was to expand it (``--data=~/logs``).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

from braidlog.errors import InvalidArgumentError

StrPath: TypeAlias = str | os.PathLike[str]


def is_uri(text: StrPath) -> bool:
    """Tell whether a name is a URI; Arrow reads archives there, nothing else does."""
    return "://" in os.fspath(text)


def local_path(path: StrPath, what: str = "the path") -> Path:
    """Return a path of this machine, with ``~`` expanded; ``what`` is what it names.

    Raises:
        InvalidArgumentError: it is empty, or a URI, or can be no path.
        TypeError: it is no text.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str or a path, not {text!r}")
    if not text:
        msg = f"{what} is empty; write '.' for the current directory"
        raise InvalidArgumentError(msg)
    if is_uri(text):
        scheme, _, rest = text.partition("://")
        instead = (
            f"write {rest!r}"
            if scheme == "file"
            else "mount the storage and name the directory"
        )
        msg = f"{what} must be on this machine, but {text!r} is a URI: {instead}"
        raise InvalidArgumentError(msg)
    if "\0" in text:
        raise InvalidArgumentError(f"{what} contains a null character: {text!r}")
    if not text.startswith("~"):
        found = Path(text)
        # `./~` is the one of here, and stays it if it comes here again.
        return found.absolute() if str(found).startswith("~") else found
    try:
        return Path(text).expanduser()
    except RuntimeError:
        user = text.partition("/")[0]
        raise InvalidArgumentError(
            f"{what} begins with {user}, but no user has that name; write "
            f"'./{user}' for a directory here"
        ) from None
