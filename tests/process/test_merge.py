"""A merge as the system sees it: what it reads, in which order, in how much memory."""

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from unit.store.test_merge import SEGMENT, write

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

_DRAIN = """
import resource, sys
from pathlib import Path
from braidlog.store.merge import RawDirectory, RawMerge
directory = RawDirectory(Path(sys.argv[1]))
numbers = {log.stream: int(log.name[-1]) for log in directory.logs()}
with RawMerge([(directory, numbers)]) as merge:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    records, size = merge.drain()
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert merge.figures().sources[0].late_bytes == 0
print(records, size, after - before)
"""
_OPEN = re.compile(r'openat\(.*"(?P<path>[^"]*slot-\d+\.wal)".*\) = (?P<file>\d+)')
_READ = re.compile(r"pread64\((?P<file>\d+),.*, (?P<at>\d+)\) = (?P<count>\d+)")
_CLOSE = re.compile(r"close\((?P<file>\d+)\)")


def drain(path: Path, *tracer: str) -> list[int]:
    command = [*tracer, sys.executable, "-c", _DRAIN, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.skipif(not shutil.which("strace"), reason="there is no strace")
def test_each_byte_is_read_once_and_front_to_back(tmp_path: Path) -> None:
    order = write(tmp_path / "log", 3000, hold=3)
    trace = tmp_path / "trace"
    calls = "trace=openat,close,pread64,read,preadv,preadv2,mmap"
    try:
        found = drain(tmp_path / "log", "strace", "-f", "-o", str(trace), "-e", calls)
    except subprocess.CalledProcessError as error:
        if "ptrace" in error.stderr:
            pytest.skip("the system does not let strace look")
        raise
    assert found[0] == len(order)
    paths: dict[str, str] = {}
    spans: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for line in trace.read_text().splitlines():
        if opened := _OPEN.search(line):
            paths[opened["file"]] = opened["path"]
        elif closed := _CLOSE.search(line):
            paths.pop(closed["file"], None)
        elif (read := _READ.search(line)) and read["file"] in paths:
            begin = int(read["at"])
            spans[paths[read["file"]]].append((begin, begin + int(read["count"])))
        else:
            # Through no other door.
            word = re.search(r" (?:read|preadv2?)\((\d+),", line)
            assert word is None or word[1] not in paths, line
    segments = sorted((tmp_path / "log" / "wal").glob("slot-*.wal"))
    read_files = {path: spans[str(path)] for path in segments if spans[str(path)]}
    assert len(read_files) > 5
    for path, pieces in read_files.items():
        assert pieces[0][0] == 0, path
        ends = [end for _, end in pieces]
        assert [begin for begin, _ in pieces[1:]] == ends[:-1], path
        assert ends[-1] <= SEGMENT, path


def test_a_log_a_hundred_times_as_long_takes_no_more_memory(tmp_path: Path) -> None:
    grown = {}
    for name, rounds in (("short", 20), ("long", 2000)):
        path = tmp_path / name
        order = write(
            path, rounds, budget=200_000, size=10_000, hold=4, segment=1 << 20
        )
        records, size, kib = drain(tmp_path / name)
        assert records == len(order)
        grown[name] = kib
        shown = size
    # 40 MB of log: what a merge that kept them would take is far above the noise.
    assert shown > 40e6
    assert grown["long"] < grown["short"] + 8 * 1024, grown
