"""What each token uses of this process, and what its quotas let through.

*Theory of operation.* A rate is a bucket: it fills by the rate, holds what comes in one
second, and begins full. As long as there is one unit in it a request passes and takes
all it costs, if need be out of a debt that fills up first. So however large a request
is, it passes at some time, also beside many small ones; and what a read costs may be
taken when it is answered, for nobody knows before.

All connections of a token share its buckets. A bucket outlives them, so connecting
again gains nothing.

*Invariants.* Over any time the requests that passed, or the bytes but for the last
request and reads that were under way, are at most the rate times the time, and one
second more. No clock is in here. There are as many meters as tokens that the file has
or that have connections.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from braidlog.errors import QuotaExceededError
from braidlog.wire.quotas import BYTES, CONNECTIONS, NO_QUOTAS, REQUESTS, Quotas
from braidlog.wire.rights import Rights

__all__ = ["Bucket", "Meter", "Meters", "TokenUse"]

_UNIT: Final = 1.0
_CONNECTION_MS: Final = 1000
"""Nobody knows when a connection ends."""


class Bucket:
    """So many units in a second, those of one second at once."""

    def __init__(self, rate: int, now: float) -> None:
        """Begin full."""
        self._rate = rate
        self._left = float(rate)
        """Negative: a debt."""
        self._at = now

    def _fill(self, now: float) -> None:
        # A clock that stands still, or goes back, gives nothing.
        more = max(0.0, now - self._at) * self._rate
        self._left = min(float(self._rate), self._left + more)
        self._at = max(now, self._at)

    def wait_s(self, now: float) -> float:
        """Return how long nothing passes; 0: something does now."""
        self._fill(now)
        return max(0.0, (_UNIT - self._left) / self._rate)

    def take(self, units: int, now: float) -> None:
        """Take units out, also those that are not there."""
        self._fill(now)
        self._left -= units

    def change(self, rate: int, now: float) -> None:
        """Go on with another rate; what is left stays, up to a second's worth."""
        self._fill(now)
        self._rate = rate
        self._left = min(float(rate), self._left)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUse:
    """What a token with quotas has used since the start, or since it has them."""

    token: str
    """Its name in the file."""
    quotas: dict[str, int]
    """Those that it has."""
    connections: int
    """Open now."""
    requests: int
    """Requests that passed, while it had a quota of bytes or requests."""
    bytes: int
    refused: dict[str, int]
    """Requests and connections that were refused, by the quota."""


class Meter:
    """One token: its connections, its buckets, its totals."""

    def __init__(self, token: str, quotas: Quotas, now: float) -> None:
        """Begin with nothing used."""
        self.token = token
        self.quotas = NO_QUOTAS
        self.connections = 0
        self._requests = self._bytes = 0
        self._refused: dict[str, int] = {}
        self._buckets: dict[str, Bucket] = {}
        self.change(quotas, now)

    @property
    def use(self) -> TokenUse:
        """Return what was used."""
        given = self.quotas.given
        return TokenUse(
            token=self.token,
            quotas=given,
            connections=self.connections,
            requests=self._requests,
            bytes=self._bytes,
            refused={name: self._refused.get(name, 0) for name in given},
        )

    def change(self, quotas: Quotas, now: float) -> None:
        """Go on with other quotas."""
        self.quotas = quotas
        for name, rate in (
            (REQUESTS, quotas.requests_per_s),
            (BYTES, quotas.bytes_per_s),
        ):
            if not rate:
                self._buckets.pop(name, None)
            elif name in self._buckets:
                self._buckets[name].change(rate, now)
            else:
                self._buckets[name] = Bucket(rate, now)

    def admit(self, size: int, now: float) -> None:
        """Let a request with a payload of `size` bytes through.

        Raises:
            QuotaExceededError: not now; then it costs nothing.
        """
        for name, bucket in self._buckets.items():
            if wait := bucket.wait_s(now):
                raise self._refusal(name, math.ceil(wait * 1000))
        if (requests := self._buckets.get(REQUESTS)) is not None:
            requests.take(1, now)
        self._requests += 1
        self.charge(size, now)

    def charge(self, size: int, now: float) -> None:
        """Note bytes that went out, or came in with what passed."""
        self._bytes += size
        if (bucket := self._buckets.get(BYTES)) is not None:
            bucket.take(size, now)

    def check_connections(self) -> None:
        """Refuse one more connection if there are as many as there may be.

        Raises:
            QuotaExceededError: there are.
        """
        most = self.quotas.connections
        if most and self.connections >= most:
            raise self._refusal(CONNECTIONS, _CONNECTION_MS)

    def _refusal(self, quota: str, wait_ms: int) -> QuotaExceededError:
        self._refused[quota] = self._refused.get(quota, 0) + 1
        limit = self.quotas.given[quota]
        return QuotaExceededError(
            f"the token {self.token!r} has used up its quota {quota} = {limit} of this "
            "node",
            quota=quota,
            limit=limit,
            retry_after_ms=max(1, wait_ms),
        )


class Meters:
    """The meters of all tokens, by the hash of each."""

    def __init__(self) -> None:
        """Begin with none."""
        self._meters: dict[str, Meter] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._meters)

    def find(self, rights: Rights, now: float) -> Meter | None:
        """Return the meter of who connects; None without a token.

        Raises:
            QuotaExceededError: its token has as many connections as it may have.
        """
        if not rights.sha256:
            return None
        meter = self._meters.get(rights.sha256)
        if meter is None:
            meter = Meter(rights.token, rights.quotas, now)
        meter.check_connections()
        return meter

    def enter(self, rights: Rights, meter: Meter) -> None:
        """Count a connection in."""
        self._meters[rights.sha256] = meter
        meter.connections += 1

    def leave(self, rights: Rights, meter: Meter) -> None:
        """Count a connection out."""
        meter.connections -= 1
        self._drop_unused(rights.sha256, meter)

    def change(self, quotas_of: Callable[[str], Quotas], now: float) -> None:
        """Go on with the quotas that are said of each hash."""
        for sha256, meter in list(self._meters.items()):
            meter.change(quotas_of(sha256), now)
            self._drop_unused(sha256, meter)

    def _drop_unused(self, sha256: str, meter: Meter) -> None:
        # Of who has quotas the buckets are kept: who comes again finds them as they
        # were left.
        unused = not meter.connections and not meter.quotas.given
        if unused and self._meters.get(sha256) is meter:
            del self._meters[sha256]

    def uses(self) -> tuple[TokenUse, ...]:
        """Return what tokens with quotas have used, by name."""
        found = [each.use for each in self._meters.values() if each.quotas.given]
        return tuple(sorted(found, key=lambda use: use.token))
