"""The manifest of a directory of results: what it names is there, nothing else counts.

It is a file ``manifest.json`` that appears in one step and can appear once. So of two
runs that publish to one directory one is first, and the other finds its own job there,
or is refused. Afterwards files that no result names are removed: they are of attempts
that failed, or were made twice.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterable, Mapping
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, Final

from braidlog import durable
from braidlog.errors import AlreadyExistsError, CorruptionError, NotFoundError
from braidlog.handover import tail_of
from braidlog.paths import StrPath, local_path
from braidlog.pipelines.job import NOTES, File, Job, Result
from braidlog.pipelines.journal import ASIDE

MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1
_FOLDER: Final = "data"
_DIGEST_BYTES: Final = 16


def home_of(output: StrPath) -> Path:
    """Return the directory of a job.

    Raises:
        InvalidArgumentError: it is empty, or a URI.
    """
    return local_path(output, "the directory of a job").absolute()


def read_manifest(home: Path) -> dict[str, Any]:
    """Return the manifest of a directory.

    Raises:
        NotFoundError: there is none: nothing was published here.
        CorruptionError: it cannot be read.
    """
    path = home / MANIFEST
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        msg = f"there are no published results of a pipeline in {home}"
        raise NotFoundError(msg) from None
    except ValueError as error:
        msg = f"the manifest cannot be read: {path}"
        raise CorruptionError(msg, path=str(path)) from error
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        msg = f"{path} is not a manifest of format {_FORMAT}"
        raise CorruptionError(msg, path=str(path))
    return found


def published(job: Job) -> dict[str, Any] | None:
    """Return what a job published in its home, None if nothing was.

    Raises:
        AlreadyExistsError: another job published there, or the files there are not
            those of jobs.
    """
    try:
        found = read_manifest(job.home)
    except NotFoundError:
        _refuse_others(job.home)
        return None
    if (found["pipeline"], found["identity"]) != (job.name, job.identity):
        raise _other(job.home, found)
    return found


def _refuse_others(home: Path) -> None:
    """Refuse a directory where no job has begun and something is.

    What a manifest does not name is removed, so it must not be anybody else's.
    """
    names = sorted(path.name for path in home.iterdir()) if home.is_dir() else []
    if names and NOTES not in names:
        raise AlreadyExistsError(
            f"{home} has files of something else, such as {names[0]!r}: name "
            "a directory that is new or empty"
        )


def _other(home: Path, found: Mapping[str, Any]) -> AlreadyExistsError:
    parameters = json.dumps(found["parameters"], ensure_ascii=False)
    job = f"{found['pipeline']!r} with {parameters}"
    return AlreadyExistsError(
        f"{home} has the results of another job ({job}): name another directory"
    )


def refuse_results(home: Path) -> None:
    """Refuse a directory with results: for jobs that leave no more than a report.

    Raises:
        AlreadyExistsError: a job published there.
    """
    with contextlib.suppress(NotFoundError):
        raise _other(home, read_manifest(home))


def publish(
    job: Job, results: Iterable[Result], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Publish the files of results in one step; durable on return.

    What is in the folder ``data`` and no longer of use is removed.

    Raises:
        AlreadyExistsError: another job published there meanwhile.
    """
    home = job.home
    entry = {
        "format": _FORMAT,
        "pipeline": job.name,
        "identity": job.identity,
        "parameters": dict(job.parameters),
        "files": [
            {"path": file.path, "bytes": file.bytes, "checksum": file.checksum}
            for result in results
            for file in result.files
        ],
        **facts,
    }
    (home / _FOLDER).mkdir(exist_ok=True)
    durable.sync(home / _FOLDER)
    data = json.dumps(entry, indent=1, ensure_ascii=False).encode() + b"\n"
    aside = home / f"{ASIDE}{secrets.token_hex(6)}"
    # If the name is there, this job was published, or another one: `published` tells.
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        durable.create(home / MANIFEST, data, temporary=aside)
    found = published(job)
    assert found is not None  # noqa: S101, RUF100
    _remove_unnamed(home, found["files"])
    return found


def _remove_unnamed(home: Path, files: Iterable[dict[str, Any]]) -> None:
    named = {file["path"] for file in files}
    for path in sorted((home / _FOLDER).rglob("*"), reverse=True):  # Inner ones first.
        with contextlib.suppress(OSError):  # Gone already, or it has files of use.
            if path.is_dir():
                path.rmdir()
            elif str(path.relative_to(home)) not in named:
                path.unlink()


def finished(home: Path, path: Path, *, checked: bool = False) -> File:
    """Make a file that was written durable, and describe it.

    One that is ``checked`` by whoever reads it gets no checksum.
    """
    durable.sync(path)
    checksum = "" if checked else _checksum(path)
    size = path.stat().st_size
    durable.sync(path.parent)
    return File(str(path.relative_to(home)), size, checksum, *tail_of(path))


def verify(home: Path, file: File) -> None:
    """Compare a file with what was published.

    Raises:
        CorruptionError: it is missing, or is something else.
    """
    path = home / file.path
    try:
        same = path.stat().st_size == file.bytes and _checksum(path) == file.checksum
    except OSError as error:
        msg = f"the published file {path} cannot be read: {error}"
        raise CorruptionError(msg, path=str(path)) from error
    if not same:
        msg = f"the published file {path} does not match its checksum"
        raise CorruptionError(msg, path=str(path))


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, lambda: blake2b(digest_size=_DIGEST_BYTES)).hexdigest()
