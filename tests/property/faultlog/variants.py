"""Ways to get the rule wrong: what people come up with first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from braidlog.faultlog import (
    Configuration,
    Decision,
    FaultRecord,
    Refuse,
    Verdict,
    Wait,
    decide,
)


def correct(records: Mapping[int, FaultRecord], lengths: Mapping[int, int]) -> Verdict:
    return decide(records)


@dataclass(frozen=True)
class Loose:
    """The rule with switches; with none of them set it is the rule."""

    number: Callable[[FaultRecord], tuple[int, ...]] = lambda record: record.number
    takes_forks: bool = False
    needs: Callable[[int, int], bool] = lambda here, live: here == live
    """Whether so many of the members that are not listed suffice."""
    takes_unviable: bool = False
    adds_accusations: bool = False
    takes_longest: bool = False

    def __call__(
        self, records: Mapping[int, FaultRecord], lengths: Mapping[int, int]
    ) -> Verdict:
        authority = max(records.values(), key=lambda r: (self.number(r), -r.node))
        said = authority.configuration
        if not self.takes_forks and any(
            record.configuration.contradicts(said) for record in records.values()
        ):
            return Refuse(authority, tuple(records), ("forked",))
        failed = set(said.failed)
        if self.adds_accusations:
            failed |= {n for r in records.values() for n in r.configuration.failed}
        live = [node for node in said.members if node not in failed]
        here = [node for node in live if node in records]
        if self.takes_longest:
            longest = max(lengths.values())
            here = [node for node in records if lengths[node] == longest]
        elif not self.needs(len(here), len(live)):
            return Wait(authority, tuple(set(live) - set(here)), ("absent",))
        viable = self.takes_unviable or self.takes_longest
        valid = tuple(node for node in here if viable or records[node].viable)
        if not valid:
            return Refuse(authority, tuple(live), ("nobody",))
        lost = tuple(node for node in said.members if node not in valid)
        new = Configuration(said.epoch + 1, 0, said.members, lost)
        return Decision(authority, valid, new)
