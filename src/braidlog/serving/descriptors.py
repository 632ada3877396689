"""How many files this process may have open: connections and segments are some."""

from __future__ import annotations

import logging
import resource
from typing import Final

from braidlog.serving.admission import Capacity, capacity

_log = logging.getLogger(__name__)

_UNLIMITED: Final = 1 << 20
"""What a process without a limit is taken to have."""


def allow_files() -> None:
    """Let the process have as many files as it may.

    The soft limit is often 1024, below `connections_max`; without descriptors a node
    could not make the next file of its log either.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            _log.warning(
                (
                    "the limit of open files stays at %d, because it cannot be raised: "
                    "%s"
                ),
                soft,
                error,
            )


def places(connections_max: int, files_max: int = 0) -> Capacity:
    """Return how many connections there may be, and say so if it is fewer.

    The process may open ``files_max`` files; 0: as many as the system says.

    Raises:
        InvalidArgumentError: the limit of open files leaves room for none.
    """
    files = files_max or _limit()
    found = capacity(connections_max, files)
    if found.clients < connections_max:
        msg = (
            "the limit of %d open files (ulimit -n) leaves room for %d client "
            "connections, not for connections_max = %d"
        )
        _log.warning(msg, files, found.clients, connections_max)
    return found


def _limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft
