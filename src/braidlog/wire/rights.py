"""What a connection may do: what its token says, as it is now.

*Invariants.* A value; a file of tokens that was read again gives new ones, and
`lacks` compares them.
"""

from __future__ import annotations

from dataclasses import dataclass

from braidlog.wire.roles import Role

__all__ = ["Rights"]


@dataclass(frozen=True, slots=True)
class Rights:
    """What a token allows, or who has none, because none is asked for."""

    role: Role
    """In the whole cluster."""
    token: str = ""
    """The name of the token; empty without one."""
    sha256: str = ""
    """Of its text, in hexadecimal."""

    def lacks(self, before: Rights) -> str:
        """Return what these do not allow that the others did; empty if nothing."""
        if self.role < before.role:
            return f"its role is {self.role.word} now, it was {before.role.word}"
        return ""
