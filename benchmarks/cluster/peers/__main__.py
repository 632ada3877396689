"""Fetch the programs of the peers: ``python -m benchmarks.cluster.peers FOLDER``."""

import argparse
import sys
from pathlib import Path

from benchmarks.cluster.peers.fetch import PEERS, RefusedError


def main() -> int:
    """Fetch all; return 1 if one of them could not be had."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster.peers", description=__doc__
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", choices=list(PEERS))
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in arguments.only or PEERS:
        try:
            print(f"{name}: {PEERS[name](folder)}", flush=True)
        except (RefusedError, OSError) as error:
            failed = True
            print(f"{name} could not be had: {error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
