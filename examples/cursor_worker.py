"""Work through a log with a stored cursor; a restart continues where it stopped."""

import sys
import tempfile

import braidlog


def work(store: braidlog.Store, jobs: int) -> None:
    log = store.log("jobs")
    # A pin keeps what is not done from being trimmed, for an hour after a commit.
    cursor = log.cursor("worker", pin=True, lease=3600)
    for record in log.read(cursor.position, limit=jobs):
        print("working on", record.value.decode())
        cursor.commit(record.position + 1)
    print("next is", cursor.position)


def main(data: str) -> None:
    with braidlog.open(data) as store:
        store.create_log("jobs", exist_ok=True).append_many(
            [b"job %d" % i for i in range(1, 6)]
        )
        work(store, jobs=2)
    with braidlog.open(data) as store:
        work(store, jobs=10)
        log = store.log("jobs")
        print("kept from", log.trim(log.end), "on")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
