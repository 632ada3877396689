"""Makes files part of an archive, one generation at a time.

Theory of operation: whoever wants to add files reads the newest generation, says what
the next one is, and creates its name. That succeeds once. Whoever loses has changed
nothing, and looks again.

Old manifests are removed when there are newer ones in plenty, so that an archive of
many generations does not list itself again and again. A name that was removed could be
created a second time, by an archiver that slept meanwhile; so a generation counts only
if it still is the newest when its name was made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braidlog.archive.layout import (
    DATA,
    MANIFESTS,
    ArchivedFile,
    Manifest,
    begin_of,
    encode,
    generation_of,
    manifest_name,
)
from braidlog.archive.place import Place
from braidlog.archive.reading import newest
from braidlog.errors import AlreadyExistsError

KEPT: Final = 16
"""Generations that stay, for readers that opened one of them a moment ago."""


def publish(place: Place, manifest: Manifest, attempt: str) -> Manifest:
    """Make a generation the newest one; durable on return. May be repeated.

    All its files are durable already. ``attempt`` is a name that nobody else uses.

    Raises:
        AlreadyExistsError: another job published a generation meanwhile.
        InvalidArgumentError: the place can only be read.
    """
    name = f"{MANIFESTS}/{manifest_name(manifest.generation)}"
    try:
        place.create(name, encode(manifest), attempt)
    except AlreadyExistsError:
        found = newest(place)
        if found is not None and _same(found, manifest):
            return found
        raise _overtaken(place) from None
    found = newest(place)
    if found is None or found.generation != manifest.generation:
        place.remove(name)
        raise _overtaken(place)
    for old in place.names(MANIFESTS):
        generation = generation_of(old)
        if generation is not None and generation <= manifest.generation - KEPT:
            place.remove(f"{MANIFESTS}/{old}")
    return manifest


def _same(found: Manifest, manifest: Manifest) -> bool:
    return (found.job, found.generation) == (manifest.job, manifest.generation)


def _overtaken(place: Place) -> AlreadyExistsError:
    msg = f"another run added to the archive at {place.location} in the meantime"
    return AlreadyExistsError(msg).advising("Run it again: it continues there")


def remove_leftovers(place: Place, manifest: Manifest) -> int:
    """Remove files that no generation can list any more; return how many.

    That is what begins before the end of a published generation and is not listed in
    it: later ones add behind the end. What begins there may be the work of a run that
    is not done, and stays.
    """
    listed = {file.path for file in manifest.files}
    removed = 0
    for folder in place.names(DATA):
        # What others put here is theirs.
        if not folder.isdecimal():
            continue
        for name in place.names(f"{DATA}/{folder}"):
            path = f"{DATA}/{folder}/{name}"
            begin = begin_of(path)
            if begin is not None and begin < manifest.end and path not in listed:
                place.remove(path)
                removed += 1
    for name in place.names(MANIFESTS):
        generation = generation_of(name.split(".json")[0] + ".json")
        dead = generation is not None and generation <= manifest.generation
        if name.endswith(".tmp") and dead:
            place.remove(f"{MANIFESTS}/{name}")
            removed += 1
    return removed


def next_generation(
    newest_one: Manifest | None,
    *,
    log: str,
    log_id: str,
    job: str,
    files: Sequence[ArchivedFile],
) -> Manifest:
    """Return the generation that adds files to what there is.

    Raises:
        InvalidArgumentError: they do not go on where it ends.
    """
    if newest_one is None:
        return Manifest(log, log_id, 1, job, tuple(files))
    return newest_one.followed_by(job, files)
