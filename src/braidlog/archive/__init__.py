"""Archives of logs: Parquet files with the records that were trimmed from a log.

`open_archive` opens an archive for reading, `verify` checks every byte of it. The
pipeline ``archive`` writes archives; `docs/archive.md` says how to keep them.
"""

from braidlog.archive.layout import ArchivedFile, Manifest, StreamRange
from braidlog.archive.reading import Archive, open_archive
from braidlog.archive.verification import Damage, Verified, verify

__all__ = [
    "Archive",
    "ArchivedFile",
    "Damage",
    "Manifest",
    "StreamRange",
    "Verified",
    "open_archive",
    "verify",
]
