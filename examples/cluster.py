"""A log on three nodes: one of them is killed, and nothing is lost."""

import sys
import tempfile
from pathlib import Path

import braidlog
from braidlog.testing.cluster import LocalCluster

COUNT = 300


def main(directory: str) -> None:
    with LocalCluster(3, directory=Path(directory)) as cluster:
        with braidlog.connect(cluster.seeds) as client:
            log = client.create_log("orders", streams=2)
            for i in range(COUNT):
                if i == COUNT // 2:
                    cluster.kill(2)
                    print("node 2 was killed")
                # Acknowledged when it is on the disk of every replica that is left.
                log.append(b"order %d" % i)
            print(COUNT, "appends acknowledged")
            values = [record.value for record in log.read()]
        assert values == [b"order %d" % i for i in range(COUNT)]
        print("every record is there, once, in order")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
