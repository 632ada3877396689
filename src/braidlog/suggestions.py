"""What was meant by a name that does not exist, and what mends a table. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_NAMES_SHOWN: Final = 20
_CUTOFF: Final = 0.7
_BEGINNING_MIN: Final = 3
_SUGGESTED_MAX: Final = 3


def close_names(name: str, known: Iterable[str]) -> str:
    """Return the known names that a mistyped one is close to, or an empty text.

    Names that begin with it are as well: somebody left the rest out.
    """
    import difflib  # Slow to import, and only mistakes need it.

    plain = {each.lower(): each for each in known}
    asked = name.lower()
    near = difflib.get_close_matches(asked, plain, cutoff=_CUTOFF)
    if not near and len(asked) >= _BEGINNING_MIN:
        near = sorted(each for each in plain if each.startswith(asked))
        near = near[:_SUGGESTED_MAX]
    return " or ".join(repr(plain[each]) for each in near)


def listed(names: Iterable[str]) -> str:
    """Return names in a line, the first ones if there are many."""
    there = sorted(names)
    more = len(there) - _NAMES_SHOWN
    shown = ", ".join(map(repr, there[:_NAMES_SHOWN])) or "none"
    return f"{shown} and {more} more" if more > 0 else shown


def table_mended(name: str) -> str:
    """Return what to do about the table of a directory that cannot be used as it is."""
    return (
        f"`braidlog table repair {name}` makes the table anew of its log, if that has "
        "all of its records; or restore the directory, `wal` and `tables` together, "
        "from a backup"
    )


def does_not_exist(what: str, name: str, known: Iterable[str]) -> str:
    """Return the message for a name that nothing has, and what may be meant.

    ``what`` begins the sentence: ``log``, ``cursor of log 'orders'``.
    """
    there = list(known)
    if near := close_names(name, there):
        return f"{what} {name!r} does not exist; did you mean {near}?"
    return f"{what} {name!r} does not exist (there are: {listed(there)})"
