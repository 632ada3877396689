"""Options of the sink, from strings to a checked value.

Theory of operation: as for reading, names are not case-sensitive, and one that is not
known is refused with the closest that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from braidlog.errors import InvalidArgumentError
from braidlog.paths import local_path
from braidlog.sources.origin import Origin
from braidlog.suggestions import does_not_exist

LOCK_WAIT_S: Final = 60.0
"""Another query may be storing its batch, and that takes a moment."""

_NAMES: Final = (
    "path",
    "cluster",
    "log",
    "token",
    "ca",
    "staging",
    "job",
    "lockWait",
)
# Spark hands over its own option of a streaming query together with those of the sink.
_SPARKS: Final = "checkpointlocation"
_STAGING: Final = "staging"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write, and where tasks leave what the driver is to append."""

    origin: Origin
    staging: str
    job: str = ""
    lock_wait_s: float = LOCK_WAIT_S


def parse_sink(
    options: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> SinkOptions:
    """Check all options; the token may come from ``BRAIDLOG_TOKEN``.

    Raises:
        InvalidArgumentError: An option is missing, unknown or malformed.
    """
    given = {name.lower(): value for name, value in options.items()}
    given.pop(_SPARKS, None)
    _refuse_unknown(given)
    path, cluster = given.get("path", ""), given.get("cluster", "")
    if bool(path) == bool(cluster) or not given.get("log"):
        raise InvalidArgumentError(
            "the Spark sink needs the option 'log' and one of 'path' (the data "
            "directory) and 'cluster' (addresses of nodes)"
        )
    token = given.get("token") or (environ or {}).get("BRAIDLOG_TOKEN", "")
    return SinkOptions(
        Origin(
            given["log"],
            path=str(_directory("path", path)) if path else "",
            cluster=cluster,
            ca=str(local_path(given["ca"], "option 'ca'")) if given.get("ca") else "",
            token=token if cluster else "",
        ),
        _staging(path, given.get("staging", "")),
        job=given.get("job", ""),
        lock_wait_s=_seconds("lockWait", given.get("lockwait")),
    )


def refuse_job(job: str) -> None:
    """Refuse the name of a job for a streaming query.

    Raises:
        InvalidArgumentError: there is one.
    """
    if job:
        raise InvalidArgumentError(
            "option 'job' is for batch jobs: leave it out, because a "
            "streaming query is identified by its checkpoint"
        )


def _staging(path: str, staging: str) -> str:
    if staging:
        return str(_directory("staging", staging))
    if not path:
        raise InvalidArgumentError(
            "the Spark sink into a cluster needs the option 'staging': a directory "
            "that the driver and all workers see under this path"
        )
    return str(_directory("path", path) / _STAGING)


def _directory(name: str, path: str) -> Path:
    return local_path(path, f"option {name!r}").absolute()


def _refuse_unknown(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _NAMES}
    for name in given:
        if name not in known:
            what = "option of the Spark sink"
            raise InvalidArgumentError(does_not_exist(what, name, _NAMES))


def _seconds(name: str, text: str | None) -> float:
    if text is None:
        return LOCK_WAIT_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise InvalidArgumentError(
            f"option {name!r} must be a number of seconds, not {text!r}"
        )
    return seconds
