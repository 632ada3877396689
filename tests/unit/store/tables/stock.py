"""What the tests of tables append, and the indexes of it."""

import json

import braidlog

INDEXES = {"by_city": "json:/city", "by_price": "json:/price:float"}


def put(store: braidlog.Store, key: bytes, city: str, price: float) -> int:
    value = json.dumps({"city": city, "price": price}).encode()
    log = store.log("orders")
    return log.append(value, key=key, timestamp=7, headers=[("h", b"1")])
