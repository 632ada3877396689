"""Repeat an append after a failure without storing it twice."""

import sys
import tempfile

import braidlog
from braidlog.errors import FencedError

PAYMENTS = [b"pay 10", b"pay 20", b"pay 30"]


def send(log: braidlog.Log, producer: braidlog.Producer, payments: list[bytes]) -> None:
    # Sequences count from 1; the log tells which one it waits for.
    done = log.next_sequence(producer) - 1
    print(f"epoch {producer.epoch}: {done} of {len(payments)} are stored")
    for sequence, payment in enumerate(payments, 1):
        # Sent again, however often, each is stored once and has its first position.
        position = log.append(payment, producer=producer, sequence=sequence)
        print("  at", position)


def main(data: str) -> None:
    producer = braidlog.Producer(id=42)
    with braidlog.open(data) as store:
        send(store.create_log("payments", exist_ok=True), producer, PAYMENTS[:2])
    # "Was the last one stored?" After a crash nobody knows; so send all of them again.
    with braidlog.open(data) as store:
        log = store.log("payments")
        send(log, producer, PAYMENTS)
        print([record.value.decode() for record in log])
        # A successor takes over with a higher epoch, and its former self is stopped.
        successor = braidlog.Producer(id=42, epoch=2)
        log.append(b"pay 40", producer=successor, sequence=1)
        try:
            log.append(b"pay 40", producer=producer, sequence=4)
        except FencedError as error:
            print("fenced:", error)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
