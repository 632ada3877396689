"""Replace the nodes of a running cluster by those of another version, under load.

    PYTHONPATH=tests python -m tests.cluster.upgrade --old REVISION [--rounds 10]

Nodes of the older revision are started, built from git, and clients of this one append
and read. One node after the other is stopped and started again as this version. While
the versions are mixed, so many rounds of faults strike each mix. In the end every
replica is compared, and all calls have to be linearizable; see `cluster.faults`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Final

from cluster.faults import Report, Storm

__all__ = ["BEFORE", "run", "tree_of"]

ROOT: Final = Path(__file__).parents[2]
# The version that clusters of this one have to be able to stand beside.
BEFORE: Final = "212d187"


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
        storm.create()
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
                load.wait_for(50, timeout=60.0)
                for _ in range(rounds):
                    storm.round(load)
                storm.settle(load)
                load = storm.new_load()
            storm.settle(load)
        finally:
            load.close()
    return report


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
