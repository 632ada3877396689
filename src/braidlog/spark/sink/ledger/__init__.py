"""What has to be decided once for a log: batches of sinks.

Beside a log ``orders`` there is a small log ``orders.ledger``, in the same directory or
cluster, so it is as durable and as replicated as the log. Its records are entries; the
first entry for a key in the order of the log counts, so any number of writers that know
nothing of each other come to the same decision.
"""

from __future__ import annotations

from braidlog.spark.sink.ledger.entries import (
    Batch,
    Done,
    Entry,
    FileList,
    Resume,
    StagedFile,
    Summary,
    Void,
)
from braidlog.spark.sink.ledger.ledger import (
    Ledger,
    LedgerLog,
    ledger_name,
    open_ledger,
)
from braidlog.spark.sink.ledger.lost import LostFilesError, StagedFileError
from braidlog.spark.sink.ledger.state import Lane, Query, State

__all__ = [
    "Batch",
    "Done",
    "Entry",
    "FileList",
    "Lane",
    "Ledger",
    "LedgerLog",
    "LostFilesError",
    "Query",
    "Resume",
    "StagedFile",
    "StagedFileError",
    "State",
    "Summary",
    "Void",
    "ledger_name",
    "open_ledger",
]
