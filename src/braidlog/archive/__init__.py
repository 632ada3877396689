"""Archives of logs: Parquet files that a log goes on from where it was trimmed.

`open_archive` reads one, `verify` proves one. What writes them is the pipeline
``archive``; `docs/archive.md` says how an archive is made and kept.
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
