"""Follow a log from another process while it is written."""

import subprocess
import sys
import tempfile

import braidlog

COUNT = 10


def write(data: str) -> None:
    with braidlog.open(data) as store:
        log = store.create_log("ticks", exist_ok=True)
        for i in range(COUNT):
            log.append(b"tick %d" % i)


def main(data: str) -> None:
    with braidlog.open(data) as store:  # So that there is something to follow.
        store.create_log("ticks", exist_ok=True)
    writer = subprocess.Popen([sys.executable, __file__, "--write", data])
    with braidlog.open(data, read_only=True) as store:
        # Any number of processes may do this; none of them holds the writer up.
        for record in store.log("ticks").subscribe(timeout=30):
            print(record.position, record.value.decode())
            if record.position == COUNT:
                break
    writer.wait()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--write", data]:
            write(data)
        case [data]:
            main(data)
        case _:
            main(tempfile.mkdtemp())
