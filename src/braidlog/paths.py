"""What a path of this machine is: one place decides it, for every call and command.

A name with ``://`` is a URI, which the file system would take for a directory: data
would go to ``./s3:/bucket`` and nobody would find it again. A name that begins like
``s3:/`` is taken for a URI that lost a slash, which is what `pathlib` makes of one:
``./s3:/bucket`` is a directory. A leading ``~`` is the home
directory, as in a shell, also where no shell was to expand it (``--data=~/logs``).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, TypeAlias

from braidlog.errors import InvalidArgumentError

StrPath: TypeAlias = str | os.PathLike[str]

_ONE_SLASH: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/(?!/)")


def is_uri(text: StrPath) -> bool:
    """Tell whether a name is a URI; Arrow reads archives there, nothing else does."""
    return "://" in os.fspath(text)


def local_path(path: StrPath, what: str = "the path", *, or_uri: bool = False) -> Path:
    """Return a path of this machine, with ``~`` expanded; ``what`` is what it names.

    With ``or_uri`` the caller takes URIs, too: the refusal then says how one begins.

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
        instead = _instead(scheme, rest)
        msg = f"{what} must be on this machine, but {text!r} is a URI: {instead}"
        raise InvalidArgumentError(msg)
    if (begin := _ONE_SLASH.match(text)) is not None:
        scheme, rest = begin[1], text[begin.end() :]
        instead = (
            f"write '{scheme}://{rest}'" if or_uri else _instead(scheme, "/" + rest)
        )
        raise InvalidArgumentError(
            f"{what} {text!r} looks like a URI that lost a slash: {instead}, or "
            f"'./{text}' for a directory here"
        )
    if "\0" in text:
        raise InvalidArgumentError(f"{what} contains a null character: {text!r}")
    if not text.startswith("~"):
        found = Path(text)
        # `./~` is the one of here, and stays it if it comes here again.
        odd = str(found).startswith("~") or _ONE_SLASH.match(str(found))
        return found.absolute() if odd else found
    try:
        return Path(text).expanduser()
    except RuntimeError:
        user = text.partition("/")[0]
        raise InvalidArgumentError(
            f"{what} begins with {user}, but no user has that name; write "
            f"'./{user}' for a directory here"
        ) from None


def _instead(scheme: str, path: str) -> str:
    """Return what to do where only a path of this machine can be named."""
    if scheme == "file":
        return f"write {path!r}"
    return "mount the storage and name the directory"
