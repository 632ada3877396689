"""What errors of applications list: places in a source, facts of an environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

RULES: Final = {
    "forbidden": "error",  # a clock, randomness, the world, identities
    "import": "error",  # inside a function, of what is not allowed
    "undefined": "error",  # a name that stands for nothing yet
    "mutable": "error",  # a value that may change between two calls
    "set-order": "error",  # the order of a set decides
    "float-sum": "error",  # a sum of floats
    "global-write": "error",  # state outside the database
    "mutable-default": "error",  # state in a default
    "async": "error",  # await, async, and procedures that are generators
    "swallow": "error",  # an except clause that stops what must not be stopped
    "finalizer": "error",  # __del__
    "method": "error",  # a method whose code the guard does not reach
    "local-time": "error",  # a conversion by the zone of the machine
    "query-order": "warning",  # rows without an order
    "libm": "warning",  # functions of the C library
    "locale": "warning",  # texts that depend on the locale
    "allow": "error",  # a comment that permits nothing
}
"""Level of each rule."""

# Facts that are there to be read: others say whether they matter.
_SHOWN: Final = frozenset({"braidlog", "build", "cpu", "machine", "release"})


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that a replay may not get the same from."""

    rule: str
    file: str
    line: int
    function: str
    what: str
    instead: str
    subject: str = ""
    """Full name of what is used, for rules about names."""
    last: int = 0
    """Last line of the place."""

    @property
    def level(self) -> Literal["error", "warning"]:
        """Whether it refuses the registration."""
        return "error" if RULES[self.rule] == "error" else "warning"

    def __str__(self) -> str:
        """Show place, rule, and what to do instead."""
        place = f"{self.file}:{self.line}: in {self.function}"
        return f"{place}: {self.what} [{self.rule}]; {self.instead}"


class Difference(NamedTuple):
    """A fact that is another one here than where the log was written."""

    fact: str
    logged: Any
    here: Any

    @property
    def matters(self) -> bool:
        """Whether commands may give something else because of it."""
        return self.fact.split(".")[0] not in _SHOWN

    def __str__(self) -> str:
        """Show both."""
        return f"{self.fact}: {self.logged!r} in the log, {self.here!r} here"
