"""The fault log: which configuration each node acted in, and what that allows later.

A node writes every configuration to its ring before it acts in it. If the metadata
repository is lost for good, `decide` finds from the newest record of each node who has
everything that was acknowledged.
"""

from braidlog.faultlog.configuration import MEMBERS_MAX, Configuration
from braidlog.faultlog.errors import ForkedError
from braidlog.faultlog.log import SLOTS_DEFAULT, FaultLog
from braidlog.faultlog.record import NO_DIGEST, FaultRecord
from braidlog.faultlog.ring import FILE_NAME, read_ring, write_locked
from braidlog.faultlog.rule import (
    Decision,
    Refuse,
    Unreadable,
    Verdict,
    Wait,
    decide,
)
from braidlog.faultlog.scan import Scan, scan

__all__ = [
    "FILE_NAME",
    "MEMBERS_MAX",
    "NO_DIGEST",
    "SLOTS_DEFAULT",
    "Configuration",
    "Decision",
    "FaultLog",
    "FaultRecord",
    "ForkedError",
    "Refuse",
    "Scan",
    "Unreadable",
    "Verdict",
    "Wait",
    "decide",
    "read_ring",
    "scan",
    "write_locked",
]
