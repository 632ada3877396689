"""A configuration of the cluster: its members and the whole set that failed.

Theory of operation. Whoever decides about the cluster numbers its configurations with
(epoch, sequence) and never takes a number twice. A failure is a new configuration that
lists the node as failed; the set is always the whole one, never what was added. A node
acts in a configuration only after its fault log has it, so an append that was
acknowledged in a configuration is on every member that this one does not list, and no
configuration before it can acknowledge anything any more.

A node that comes back goes through four steps, in this order:

    1  it records the newest configuration, which lists it, and itself as not viable,
       after every viable member that is not listed recorded that configuration
    2  it may lose what its log had; nobody listed it otherwise, nor does itself
    3  the cluster stops listing it (`FaultRecord.with_back`), and appends wait for it
       from there on
    4  it copies what was acknowledged up to then, and records itself as viable

Step 3 before step 1 would leave nodes that trust it and a record of its own that says
nothing against it: a crash there makes its old log look good. A listed node that
records before the others would have the greatest record before anybody acts in it: two
rescues with different nodes present would then decide differently.

Invariants:
    - At least one member is not listed, and one such member is viable.
    - Numbers rise; the sequence begins again at 0 with each epoch.
    - An epoch begins only by a rescue (`rule.decide`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from braidlog.errors import InvalidArgumentError, TooLargeError

__all__ = ["MEMBERS_MAX", "Configuration"]

MEMBERS_MAX = 200
"""Members and failed nodes of 8 bytes each have to fit into one slot."""

_NUMBER_MAX = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the cluster is, as one decision said it."""

    epoch: int
    sequence: int
    members: tuple[int, ...]
    """Every node of the cluster, rising."""
    failed: tuple[int, ...] = ()
    """All members whose logs may lack something, rising; never all members."""

    def __post_init__(self) -> None:
        """Refuse what no cluster can be.

        Raises:
            TooLargeError: There are more members than a record holds.
            InvalidArgumentError: Numbers or sets make no sense.
        """
        if len(self.members) > MEMBERS_MAX:
            msg = f"{len(self.members)} members are too many, {MEMBERS_MAX} the most"
            raise TooLargeError(msg, size=len(self.members), limit=MEMBERS_MAX)
        if not 0 < self.epoch <= _NUMBER_MAX or not 0 <= self.sequence <= _NUMBER_MAX:
            number = f"epoch {self.epoch} and sequence {self.sequence}"
            raise InvalidArgumentError(f"a configuration cannot have {number}")
        for name, nodes in (("members", self.members), ("failed", self.failed)):
            if any(not 0 < node <= _NUMBER_MAX for node in nodes):
                raise InvalidArgumentError(f"{name}: node ids are 1..2**64-1")
            if any(a >= b for a, b in pairwise(nodes)):
                raise InvalidArgumentError(f"{name}: {nodes} are not in rising order")
        if strangers := set(self.failed) - set(self.members):
            raise InvalidArgumentError(
                f"failed nodes {sorted(strangers)} are not members"
            )
        if len(self.failed) == len(self.members):
            raise InvalidArgumentError("every member is listed as failed")

    @property
    def number(self) -> tuple[int, int]:
        """Return epoch and sequence, in the order in which they are compared."""
        return (self.epoch, self.sequence)

    @property
    def live(self) -> tuple[int, ...]:
        """Return the members that are not listed as failed."""
        return tuple(node for node in self.members if node not in self.failed)

    def contradicts(self, other: Configuration) -> bool:
        """Tell whether both have one number and say different things."""
        return self.number == other.number and self != other

    def without(self, nodes: Iterable[int]) -> Configuration:
        """Return the next configuration, in which these are listed as well.

        The caller makes sure that a viable member remains.

        Raises:
            InvalidArgumentError: One is no member, or nobody would be left.
        """
        failed = tuple(sorted({*self.failed, *nodes}))
        return replace(self, sequence=self.sequence + 1, failed=failed)
