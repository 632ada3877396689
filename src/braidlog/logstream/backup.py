"""A backup: takes what the primary of its epoch sends, in order.

*Invariants.* Nothing of another epoch is written. What is written goes to the next
LLSN.
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.errors import LogError, StoreFailedError
from braidlog.logstream.batch import number
from braidlog.logstream.core import Core
from braidlog.logstream.storage import Batch
from braidlog.wire.messages import Replicate

__all__ = ["replicate"]


def replicate(core: Core, message: Replicate, batches: Sequence[Batch]) -> None:
    """Write the batches that are next; note what is missing.

    Raises:
        RemoteProtocolError: the batches are not what the message says.
    """
    if core.stopped or core.config is None or message.epoch < core.config.epoch:
        # A primary that was replaced goes on for a while. What it sends was never
        # committed, and its LLSNs are given to other records by now.
        return
    if message.epoch > core.config.epoch:
        # The report of the old epoch is what brings the new configuration.
        core.out.report_due = True
        epoch, end = core.announced
        end = end if epoch == message.epoch else 0
        if message.epoch >= epoch:
            core.announced = message.epoch, max(end, _reaches(message))
        return
    if not core.entered or not core.is_member or core.is_primary:
        # Before it is in the epoch the log here may end elsewhere: what is sent now is
        # fetched afterwards. A learner copies only what is committed.
        core.heard_end = max(core.heard_end, _reaches(message))
        return
    numbered = number(message.llsn_begin, message.sizes, batches)
    end = numbered[-1][1] if numbered else message.llsn_begin
    core.heard_end = max(core.heard_end, end)
    place(core, numbered)


def _reaches(message: Replicate) -> int:
    """Return what has to be fetched at least, so that the message is not missed."""
    return message.llsn_begin + (1 if message.sizes else 0)


def place(core: Core, numbered: Sequence[tuple[int, int, Batch]]) -> bool:
    """Write the batches that begin at the next LLSN; tell whether any was.

    What is there already is left out, and so is everything behind a gap. A batch that
    the storage refuses is fetched again later.
    """
    fresh = [each for each in numbered if each[0] >= core.next]
    if not fresh or fresh[0][0] != core.next:
        return False
    try:
        core.storage.place(core.epoch, core.next, [batch for _, _, batch in fresh])
    except StoreFailedError:
        raise
    except LogError as error:
        # Nothing was written. What the sender has stays missing here, so it is fetched
        # until it can be taken; the reports show that this replica stands still.
        core.heard_end = max(core.heard_end, fresh[-1][1])
        core.refused = error
        return False
    core.wrote()
    if core.next >= core.heard_end:
        # Not before: room for one batch more is no end of the trouble.
        core.refused = None
    return True
