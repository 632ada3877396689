"""Create a log, append, read it back, close, open again."""

import sys
import tempfile

import braidlog


def main(data: str) -> None:
    with braidlog.open(data) as store:
        orders = store.create_log("orders", exist_ok=True)
        position = orders.append(b"two coffees", key=b"table 4")
        print("durable at position", position)
        orders.append_many([b"one tea", b"a cake"], keys=[b"table 7", b"table 4"])

    with braidlog.open(data) as store:
        orders = store.log("orders")
        for record in orders.read(key=b"table 4"):
            print(record.position, record.value.decode())
        print("positions", orders.first, "to", orders.end - 1)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
