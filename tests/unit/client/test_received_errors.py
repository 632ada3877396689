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
@pytest.mark.parametrize(
    "code", [70, 90, 94], ids=["no leader", "failed", "unfinished"]
)
def test_what_ails_one_node_is_no_final_answer(code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code=code)],
        capture_output=True,
        check=True,
    )
    assert done.stdout.strip() == b"MOVED"
