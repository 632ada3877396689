"""Replace the nodes of a running cluster by those of another version, under load.

    PYTHONPATH=tests python -m tests.cluster.upgrade --old REVISION [--rounds 10]

Nodes of the older revision are started, built from git, and clients of this one append
and read. One node after the other is stopped and started again as this version. While
the versions are mixed, so many rounds of faults strike each mix. In the end every
replica is compared, and all calls have to be linearizable; see `cluster.faults`. If the
older version does not know null values, they are refused until the last node is new.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Set
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Final

import braidlog
from braidlog.errors import OlderNodesError
from cluster.faults import Report, Storm

__all__ = ["BEFORE", "run", "tree_of"]

ROOT: Final = Path(__file__).parents[2]
# The version that clusters of this one have to be able to stand beside.
BEFORE: Final = "c4619e83"


def tree_of(revision: str, directory: Path) -> Path:
    """Check out and build a revision below a directory; return where its package is."""
    tree = directory / revision
    module = tree / "src" / "braidlog" / "_native.abi3.so"
    if module.exists():
        return tree / "src"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    archive = ["git", "-C", str(ROOT), "archive", revision]
    with subprocess.Popen(archive, stdout=subprocess.PIPE) as packed:
        subprocess.run(["tar", "-x"], cwd=tree, stdin=packed.stdout, check=True)
    assert packed.returncode == 0, f"git has no revision {revision}"
    build = ["cargo", "build", "--release", "--locked", "-p", "braidlog-native"]
    subprocess.run(build, cwd=tree, check=True)
    shutil.copy(tree / "target" / "release" / "lib_native.so", module)
    shutil.rmtree(tree / "target")
    return tree / "src"


def run(report: Report, rounds: int, directory: Path, old: Path) -> Report:
    """Upgrade node by node, with so many rounds of faults between."""
    with ExitStack() as stack:
        storm = Storm(report, directory, stack, volatile=False, package=old)
        nodes = storm.cluster.nodes
        storm.create()
        older = set() if (old / "braidlog/wire/features.py").exists() else set(nodes)
        load = storm.new_load()
        try:
            load.wait_for(50)
            for node in storm.cluster.nodes:
                loaded = Path(f"/proc/{storm.cluster.pid(node)}/maps").read_text()
                assert str(old) in loaded, f"node {node} is not of {old}"
                storm.chaos.package(node, None)
                storm.cluster.stop(node)
                storm.cluster.restart(node)
                storm.cluster.wait_ready(node)
                older.discard(node)
                append_null(storm.cluster.seeds, older)
                load.wait_for(50, timeout=60.0)
                for _ in range(rounds):
                    storm.round(load)
                storm.settle(load)
                load = storm.new_load()
            append_null(storm.cluster.seeds, set())
            storm.settle(load)
        finally:
            load.close()
    return report


def append_null(seeds: str, older: Set[int]) -> None:
    """Append a null value, which some nodes do not know; other records go on."""
    deadline = time.monotonic() + 60.0
    with braidlog.connect(seeds) as client:
        log = client.create_log("nulls", exist_ok=True, min_replicas=1)
        while True:
            try:
                position = log.append(None, key=b"k")
            except OlderNodesError as error:
                # What nodes say of themselves arrives after they are ready.
                if older and set(error.nodes) <= older:
                    log.append(b"in between")
                    return
                if time.monotonic() >= deadline:
                    raise
                time.sleep(0.1)
            else:
                assert not older, f"nodes {older} do not know the value at {position}"
                assert log[position].value is None
                return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default=BEFORE)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().getrandbits(32)
    )
    parser.add_argument("--built", type=Path, help="where built revisions are kept")
    options = parser.parse_args()
    report = Report(options.seed, 3)
    with tempfile.TemporaryDirectory(prefix="braid-upgrade-") as made:
        old = tree_of(options.old, options.built or Path(made))
        run(report, options.rounds, Path(made) / "run", old)
    sys.stdout.write(json.dumps(asdict(report), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
