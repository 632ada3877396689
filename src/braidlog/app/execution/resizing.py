"""Another number of partitions: what the new ones store beside their rows. Pure.

*Theory of operation.* A RESIZE entry stands in the log as a command on all partitions
does. Every host comes to it with the same rows, and spreads them over the new ones by
their keys. A call names the entry by which it was routed, so one that was routed by
an older number executes nothing: it ends as `Status.MOVED`, and its host appends it
again.

*Invariants.* A new partition remembers the newest calls of all old ones, as many as it
may, and says of the rest that they are forgotten: so a call that was executed before
the entry is answered or refused behind it, and never executed twice. Its clock is not
behind that of any old one. The entry counts as the last command on each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from braidlog.app.execution.entries import Resize
from braidlog.app.execution.state import Progress, Resizing, StoredResult

if TYPE_CHECKING:
    from braidlog.app.execution.catalog_state import CatalogState
    from braidlog.app.execution.partition import Partition

RESIZE: Final = "(resize)"
"""Stands for the procedure in what is compared; no procedure has this name."""
OUTSIDE: Final = -1
"""The routing of partitions that the log does not know: no call has it."""


def plan(
    position: int,
    routing: int,
    entry: Resize,
    books: Sequence[Partition],
    shared: CatalogState,
) -> Resizing:
    """Return what the partitions behind a RESIZE entry hold; all is committed."""
    before = [book.progress for book in books]
    kept = _results(books)
    dropped = kept[: max(0, len(kept) - shared.results_kept)]
    forgotten = [each.forgotten for each in before]
    forgotten += [each.position for each in dropped[-1:]]
    progress = Progress(
        applied=position,
        last=position,
        time=max(each.time for each in before),
        forgotten=max(forgotten),
        steps=before[0].steps,
    )
    each_one = [replace(progress, shared={}) for _ in range(entry.partitions)]
    each_one[0].shared = shared.stored_behind(routing, entry.partitions)
    schema = shared.schema[: progress.steps]
    # Whatever lies at or before what is forgotten would be forgotten again.
    left = [each for each in kept if each.position > progress.forgotten]
    return Resizing(entry.row_keys, schema, each_one, left)


def _results(books: Sequence[Partition]) -> list[StoredResult]:
    """Return what all partitions remember, in order, each once.

    Behind an earlier RESIZE entry several of them have the same.
    """
    found: dict[int, StoredResult] = {}
    for book in books:
        for position, *_ in book.state.kept():
            if position not in found:
                result = book.state.result(position)
                assert result is not None, "it was listed, and nothing was committed"
                found[position] = result
    return [found[position] for position in sorted(found)]
