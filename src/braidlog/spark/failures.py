"""Raise errors of Braidlog in workers and planners to the user with their own class.

Theory of operation: Spark turns each error of a source into an exception of its own,
whose text holds the Python traceback. The last line of the traceback names the class
and the message. So the error is found in the text and raised again, with Spark's
exception as its cause.

Spark itself refuses a writer without a save mode and advises ``overwrite``, which a log
refuses. That error is replaced as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from braidlog.errors import InvalidArgumentError, LogError
from braidlog.wire.error_codes import error_at

_RAISED: Final = re.compile(r"\b(braidlog(?:\.\w+)+)\.(\w+Error): (.*)$", re.M)
_NO_SUCH_MODE: Final = re.compile(
    r'\[UNSUPPORTED_DATA_SOURCE_SAVE_MODE\] The data source "braidlog'
)


def log_error(error: BaseException) -> LogError | None:
    """Return the error of Braidlog that an exception of Spark wraps, None if none.

    Class and message are those of the worker; other attributes have their defaults.
    """
    text = str(error)
    if _NO_SUCH_MODE.search(text):
        return InvalidArgumentError(
            "a log can only be appended to, and the default save mode of "
            'Spark is a different one: write with .mode("append")'
        )
    found = _RAISED.findall(text)
    if not found:
        return None
    module, name, said = found[-1]
    # Only a worker with a newer version names a class that is not known here.
    kind = error_at(module, name) or LogError
    return _again(kind, said.strip())


@contextmanager
def log_errors() -> Iterator[None]:
    """Raise the error of Braidlog instead of the exception of Spark that wraps it.

    Raises:
        LogError: the error of a reader or a writer, in whatever process it ran.
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


def _again(kind: type[LogError], said: str) -> LogError:
    """Return an error that is shown as ``said``, which ends with its hint."""
    at = said.rfind(f" {kind.hint}") if kind.hint else -1
    if at < 0:
        return kind(said).advising("")  # Its own hint is part of the message.
    return kind(said[:at].removesuffix("."))
