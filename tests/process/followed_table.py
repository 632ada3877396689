"""A process that writes a log and its table, for readers in other processes.

Record n, counted from 1, has the key and value of `record`. Every position that it has
acknowledged is printed.
"""

from __future__ import annotations

import sys

import braidlog

KEYS = 97


def record(n: int) -> tuple[bytes, bytes]:
    """Return key and value of a record; one in 13 deletes its key."""
    key = b"key %d" % (n * 31 % KEYS)
    return key, b"" if n % 13 == 0 else b'{"n":%d,"group":%d}' % (n, n % 5)


def state(position: int) -> dict[bytes, int]:
    """Return position of the record of each key, as of a position."""
    found: dict[bytes, int] = {}
    for n in range(1, position + 1):
        key, value = record(n)
        if value:
            found[key] = n
        else:
            found.pop(key, None)
    return found


def main(directory: str, records: int) -> None:
    """Append, and flush and merge the table all the time."""
    with braidlog.open(directory, segment_bytes=1 << 20) as store:
        log = store.create_log("events", exist_ok=True)
        table = store.create_table(
            "keys",
            log="events",
            indexes={"by_group": "json:/group:int"},
            memory_bytes=1 << 16,
            deletes="empty",
            exist_ok=True,
        )
        for n in range(log.end, records + 1):
            key, value = record(n)
            log.append(value, key=key)
            if n % 7 == 0:
                table.flush()
            if n % 50 == 0:
                print(n, flush=True)  # noqa: T201, RUF100
            if n % 200 == 0:
                log.trim(table.describe().pin)
        print("done", flush=True)  # noqa: T201, RUF100
        sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
