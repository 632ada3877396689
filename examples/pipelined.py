"""Submit without waiting: each record has its position at once; many share a sync."""

import sys
import tempfile
import time

import braidlog

COUNT = 20_000


def main(data: str) -> None:
    with braidlog.open(data) as store:
        events = store.create_log("events", exist_ok=True)
        before, start = store.stats().syncs, time.perf_counter()
        pending = [events.submit(b"event %d" % i) for i in range(COUNT)]
        print("the last one will be at", pending[-1].position)
        # Records become durable in order: when the last one is, all are.
        pending[-1].result()
        seconds, syncs = time.perf_counter() - start, store.stats().syncs - before
        print(f"{COUNT} records durable in {seconds:.2f} s with {syncs} syncs")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
