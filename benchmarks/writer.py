"""Write to a store in a process of its own, then close it or be killed.

python -m benchmarks.writer STORE DIRECTORY BYTES [--kill]
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from benchmarks import data
from benchmarks.embedded import Embedded
from benchmarks.peers import PEERS, Peer
from benchmarks.plan import MIB

STORES: dict[str, type[Peer | Embedded]] = {
    Embedded.name: Embedded,
    **{each.name: each for each in PEERS},
}
_RECORD_BYTES = 1024
_BLOCK_MIB = 64


def write(name: str, directory: Path, size: int, *, kill: bool) -> None:
    """Write `size` bytes of values in a child process.

    Raises:
        RuntimeError: The child failed before it had written everything.
    """
    directory.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", __name__, name, str(directory), str(size)]
    done = subprocess.run(
        [*command, *(["--kill"] if kill else [])],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != (-signal.SIGKILL if kill else 0):
        raise RuntimeError(f"writer ended with {done.returncode}: {done.stderr[-500:]}")


def main() -> None:
    """Write as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", choices=STORES)
    parser.add_argument("directory", type=Path)
    parser.add_argument("bytes", type=int)
    parser.add_argument("--kill", action="store_true")
    arguments = parser.parse_args()
    store = STORES[arguments.store](arguments.directory)
    blocks = data.lists(1, min(_BLOCK_MIB, arguments.bytes // MIB), _RECORD_BYTES)
    for turn in range(arguments.bytes // MIB):
        store.append_group(blocks[turn % len(blocks)])
    if arguments.kill:
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


if __name__ == "__main__":
    main()
