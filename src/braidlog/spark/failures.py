"""Errors of Braidlog in workers and planners, raised to the user as what they are.

Theory of operation: Spark turns whatever a source raises into an exception of its own,
whose text holds the Python traceback. The last line of that names the class and its
message; so the error is found in the text and raised again, with Spark's as its cause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from braidlog.errors import LogError
from braidlog.wire.error_codes import error_at

__all__ = ["log_error", "log_errors"]

_RAISED: Final = re.compile(r"\b(braidlog(?:\.\w+)+)\.(\w+Error): (.*)$", re.M)


def log_error(error: BaseException) -> LogError | None:
    """Return the error of Braidlog that an exception of Spark tells of, if it does.

    Class and message are those of the worker; other attributes have their defaults.
    """
    found = _RAISED.findall(str(error))
    if not found:
        return None
    module, name, text = found[-1]
    # Only a worker with a newer version names a class that is not known here.
    kind = error_at(module, name) or LogError
    return kind(_message(kind, text))


@contextmanager
def log_errors() -> Iterator[None]:
    """Raise errors of Braidlog for what Spark raises, where there is one behind it.

    Raises:
        LogError: what a reader or a writer raised, in whatever process it ran.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = log_error(error)
        if found is None:
            raise
        raise found from error


def _message(kind: type[LogError], text: str) -> str:
    """Return the message without what the class adds to it when it is shown."""
    line = text.strip()
    hint = kind.hint
    at = line.find(f". {hint}") if hint else -1
    return line[:at] if at >= 0 else line
