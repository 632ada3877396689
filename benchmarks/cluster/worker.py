"""A client process: ``python -m benchmarks.cluster.worker JSON``.

It connects to a log that is there and says so. For each line of its standard input it
appends for a while, and writes what came of it. It ends with its standard input.
"""

import json
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from benchmarks import data
from benchmarks.cluster import load
from benchmarks.cluster.load import Bound, Loop
from benchmarks.cluster.systems import SYSTEMS


def main(asked: Any) -> None:
    """Work until the input ends."""
    value = data.value(asked["seed"], 128)
    bound = Bound(asked["calls"], asked["seconds"])
    client = SYSTEMS[asked["system"]].client(asked["address"])
    with ExitStack() as stack:
        loop = Loop(stack)
        stack.callback(lambda: loop.run(client.close()))
        loop.run(client.open(asked["log"], 1, make=False))
        print(json.dumps("ready"), flush=True)
        for _ in sys.stdin:
            before = time.process_time_ns()
            run = loop.run(load.callers(client, value, bound, asked["tasks"]))
            spent_us = (time.process_time_ns() - before) / 1e3
            print(json.dumps({**asdict(run), "spent_us": spent_us}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
