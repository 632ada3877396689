"""The fault log: which configuration each node acted in, and what that allows later.

A node writes every configuration to its ring before it acts in it. If the metadata
repository is lost for good, `decide` finds from the newest record of each node who has
everything that was acknowledged. All of it is pure; the file of a ring is in
`braidlog.node.rescue`.
"""

from braidlog.faultlog.configuration import MEMBERS_MAX, Configuration
from braidlog.faultlog.errors import ForkedError
from braidlog.faultlog.record import NO_DIGEST, FaultRecord
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
    "MEMBERS_MAX",
    "NO_DIGEST",
    "Configuration",
    "Decision",
    "FaultRecord",
    "ForkedError",
    "Refuse",
    "Scan",
    "Unreadable",
    "Verdict",
    "Wait",
    "decide",
    "scan",
]
