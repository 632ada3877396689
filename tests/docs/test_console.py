"""Commands in `console` blocks print what the document shows."""

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

import braidlog
from docs.documents import ROOT, blocks

OPERATING = ROOT / "docs" / "operating" / "embedded.md"


@pytest.fixture
def damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the directory that the document speaks of."""
    pytest.importorskip("braidlog.store.inspect")
    monkeypatch.chdir(tmp_path)
    with braidlog.open("data", segment_bytes=65536, wal_bytes_max=1 << 20) as node:
        orders = node.create_log("orders", compression="zstd")
        events = node.create_log("events")
        begin = 1_700_000_000_000_000
        for number in range(30):
            events.append(b"%05d " % number * 600, timestamp=begin + number)
        orders.append_many([b"tea", b"milk"], keys=[b"a", None], timestamps=begin)
        orders.cursor("billing").commit(2)
        # Housekeeping makes the next one, beside the appends.
        while not Path("data", "wal", "slot-000003.wal").exists():
            time.sleep(0.01)
    slot = tmp_path / "data" / "wal" / "slot-000001.wal"
    data = bytearray(slot.read_bytes())
    data[data.find(b"00004 00004") + 50] ^= 1
    slot.write_bytes(data)
    (tmp_path / "rows.jsonl").write_text('{"v":"a"}\n{"v":"b"}\n{"w":"c"}\n')
    return tmp_path


def shown(text: str) -> list[tuple[str, list[str]]]:
    """Split a block into commands and the lines behind each."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def normal(line: str) -> str:
    """Leave out what is random, and how wide columns are."""
    line = re.sub(r"\b[0-9a-f]{16}\b", "SALT", line)
    return " ".join(line.split())


@pytest.mark.process
@pytest.mark.timeout(180)
def test_the_output_is_as_shown(damaged: Path) -> None:
    commands = [
        pair
        for block in blocks(OPERATING)
        if block.words[:1] == ("console",)
        for pair in shown(block.text)
    ]
    assert len(commands) > 5
    for command, lines in commands:
        result = subprocess.run(
            [sys.executable, "-m", "braidlog", *shlex.split(command)[1:]],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=damaged,
            env=os.environ | {"COLUMNS": "200", "TERM": "dumb"},
        )
        assert result.returncode in (0, 1, 5, 8), command
        printed = [normal(line) for line in result.stdout.splitlines()]
        assert printed == [normal(line) for line in lines], command
