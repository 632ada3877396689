"""What a connection may do: what its token says, in the cluster and on logs by name.

*Theory of operation.* A token has a role in the whole cluster, and grants: a role on
one log, or on all whose names begin alike. On a log the greatest of all that fit
counts, so a grant only ever adds.

*Invariants.* A value; a file of tokens that was read again gives new ones, and `lacks`
compares them. Names are compared character by character: nothing in a pattern but a
`*` at its end has a meaning.
"""

from __future__ import annotations

from dataclasses import dataclass

from braidlog.errors import InvalidArgumentError, UnauthorizedError
from braidlog.wire.quotas import NO_QUOTAS, Quotas
from braidlog.wire.roles import Role

__all__ = ["Grant", "Rights"]


@dataclass(frozen=True, slots=True)
class Grant:
    """A role on the logs of a name, or of a prefix that `*` ends."""

    pattern: str
    role: Role

    def __post_init__(self) -> None:
        """Refuse what no log could be meant by.

        Raises:
            InvalidArgumentError: says what is wrong.
        """
        if not self.pattern or "*" in self.pattern[:-1]:
            raise InvalidArgumentError(
                f"logs: {self.pattern[:64]!r} must be the name of a log, or a prefix "
                "that ends with its only *"
            )
        if self.role not in (Role.READ, Role.APPEND, Role.ADMIN):
            raise InvalidArgumentError(
                f"logs: the role on {self.pattern[:64]!r} must be read, append or "
                f"admin, not {self.role.word}"
            )

    def fits(self, log: str) -> bool:
        """Tell whether it is about a log."""
        if self.pattern.endswith("*"):
            return log.startswith(self.pattern[:-1])
        return log == self.pattern

    def covers(self, other: Grant) -> bool:
        """Tell whether it allows all that another one does."""
        if self.role < other.role:
            return False
        if other.pattern.endswith("*") and not self.pattern.endswith("*"):
            return False
        return self.fits(other.pattern.removesuffix("*")) or self == other


@dataclass(frozen=True, slots=True)
class Rights:
    """What a token allows, or who has none, because none is asked for."""

    role: Role
    """In the whole cluster."""
    token: str = ""
    """The name of the token; empty without one."""
    sha256: str = ""
    """Of its text, in hexadecimal."""
    grants: tuple[Grant, ...] = ()
    quotas: Quotas = NO_QUOTAS

    @property
    def most(self) -> Role:
        """Return the greatest role that it has on anything."""
        return max([self.role, *(grant.role for grant in self.grants)])

    def on(self, log: str) -> Role:
        """Return the role on a log."""
        fitting = (grant.role for grant in self.grants if grant.fits(log))
        return max([self.role, *fitting])

    def require(self, log: str, needed: Role, what: str) -> None:
        """Refuse what these do not allow on a log.

        Raises:
            UnauthorizedError: names the log, the role that is needed, and that of the
                token.
        """
        has = self.on(log)
        if has < needed:
            said = "no role" if has is Role.NONE else f"role {has.word}"
            raise UnauthorizedError(
                f"{what} on the log {log!r} needs a token of role {needed.word}; the "
                f"token {self.token!r} has {said} there"
            )

    def lacks(self, before: Rights) -> str:
        """Return what these do not allow that the others did; empty if nothing."""
        if self.role < before.role:
            return f"its role is {self.role.word} now, it was {before.role.word}"
        for grant in before.grants:
            kept = any(each.covers(grant) for each in self.grants)
            if grant.role > self.role and not kept:
                return f"it may no longer {grant.role.word} on {grant.pattern!r}"
        return ""
