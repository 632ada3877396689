"""What a task must find on the machine of its worker: directories, files, packages.

Theory of operation: the driver reads the log where it is before any task does. A task
that fails to find the same there runs on another machine, or in a container. So its
error names that machine: the message of a missing directory alone looks as if the log
were gone. Of directories the reader carries landmarks from the driver
(`braidlog.handover`), because another directory at the same path may even have a log of
that name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from braidlog.errors import NotFoundError, NotSharedError
from braidlog.handover import (
    Landmark,
    check_landmarks,
    here,
    identify_imports,
    landmark_of,
)
from braidlog.sources.source import LogSource
from braidlog.spark.source.options import ReadOptions
from braidlog.spark.source.places import open_source

_IDENTITY: Final = "IDENTITY"
"""File of a data directory that never changes while the directory is there."""


def landmarks_of(options: ReadOptions) -> tuple[Landmark, ...]:
    """Return how workers recognize the directories that the driver reads."""
    # A directory that the driver does not see is its own error, when it plans.
    found = (
        landmark_of(Path(path).absolute(), _IDENTITY)
        for path in options.origin.directories()
    )
    return tuple(each for each in found if each is not None)


@contextmanager
def open_on_worker(
    options: ReadOptions, landmarks: tuple[Landmark, ...]
) -> Iterator[LogSource]:
    """Open the log that the options name, in the process of a task.

    Raises:
        NotSharedError: this process does not see what the driver saw.
        ImportError: a package is missing on this machine.
        NotFoundError: there is no such log any more.
    """
    check_landmarks(landmarks)
    with identify_imports(), _opened(options) as source:
        yield source


def _opened(options: ReadOptions) -> LogSource:
    try:
        return open_source(options)
    except FileNotFoundError as error:
        # Only the file of authorities is opened by others than the log itself.
        raise _unseen(options.origin.ca or str(error.filename)) from error
    except NotFoundError as error:
        if not options.origin.include_archive:
            raise
        raise _unseen(error.message) from error


def _unseen(what: str) -> NotSharedError:
    msg = (
        f"the worker on {here()} does not see what its driver sees: "
        f"{what}; all workers must see the directory under the same path"
    )
    return NotSharedError(msg, path=what, worker=here())
