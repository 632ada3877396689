"""What a client makes of errors of nodes, with nothing imported but the client."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import braidlog.client
from braidlog.client.retry import verdict_of
from braidlog.wire.failures import decode_failure
from braidlog.wire.messages import Failed
print(verdict_of(decode_failure(Failed({code}, "not here", {{}}))).name)
"""


@pytest.mark.process
def test_a_node_that_does_not_lead_is_no_final_answer() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code=70)],
        capture_output=True,
        check=True,
    )
    assert done.stdout.strip() == b"MOVED"
