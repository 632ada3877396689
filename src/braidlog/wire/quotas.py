"""Quotas: how much of each node a token may use, as its file says it.

*Invariants.* A value. What a file says is understood as a whole or refused.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Final

from braidlog.errors import InvalidArgumentError

__all__ = [
    "BYTES",
    "CONNECTIONS",
    "NO_QUOTAS",
    "QUOTA_MAX",
    "REQUESTS",
    "Quotas",
]

BYTES: Final = "bytes_per_s"
REQUESTS: Final = "requests_per_s"
CONNECTIONS: Final = "connections"
"""Names of quotas: in a file, in an error, in metrics."""

QUOTA_MAX: Final = 10**15
"""Above any machine, and a number that a float has exactly."""


@dataclass(frozen=True, slots=True)
class Quotas:
    """What the connections of a token may use of a node together; 0: all there is."""

    bytes_per_s: int = 0
    """Bytes of records and other payloads, in both directions."""
    requests_per_s: int = 0
    connections: int = 0
    """Connections that are open at a time."""

    @property
    def given(self) -> dict[str, int]:
        """Return those that there are, by name."""
        return {name: most for name, most in asdict(self).items() if most}

    @property
    def rates(self) -> bool:
        """Whether requests have to be counted."""
        return bool(self.bytes_per_s or self.requests_per_s)

    @classmethod
    def parse(cls, given: object) -> Quotas:
        """Return the quotas of an entry of a file.

        Raises:
            InvalidArgumentError: it is something else; the message says what.
        """
        names = [each.name for each in fields(cls)]
        if not isinstance(given, dict):
            raise InvalidArgumentError(
                "quotas must be names and numbers, such as "
                f"{{ {BYTES} = 1000000, {CONNECTIONS} = 10 }}"
            )
        for name, most in given.items():
            if name not in names:
                raise InvalidArgumentError(
                    f"quotas: {name[:64]!r} does not exist (there are: "
                    f"{', '.join(names)})"
                )
            # In Python a truth value is a number.
            whole = isinstance(most, int) and not isinstance(most, bool)
            if not whole or not 1 <= most <= QUOTA_MAX:
                raise InvalidArgumentError(
                    f"quotas: {name} must be a whole number from 1 to {QUOTA_MAX}, "
                    f"got {str(most)[:64]}"
                )
        return cls(**given)


NO_QUOTAS: Final = Quotas()
