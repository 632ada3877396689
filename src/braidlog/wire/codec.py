"""Messages from and to the head of a frame, and what their payloads have to be.

*Theory of operation.* The fields of a message are one MessagePack array. msgspec checks
types and ranges by the annotations of `braidlog.wire.messages`; what concerns several
fields, or fields and payload, is checked here. The elements of an array that this build
does not know come from a newer minor version and are passed over.

*Invariants.* `decode(KIND, encode(m), payload) == m` for every message and a payload
that it allows. Any other bytes raise `RemoteProtocolError`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, TypeAlias

import msgspec

from braidlog.errors import RemoteProtocolError
from braidlog.wire import messages
from braidlog.wire.messages import MESSAGES, Message

__all__ = ["decode", "encode", "split"]

_decoders: Final = {
    kind: msgspec.msgpack.Decoder(message) for kind, message in MESSAGES.items()
}

_CALL_BYTES: Final = 16
_IDENTITY_BYTES_MAX: Final = 64
"""Identity of a command: it is remembered, and thousands of others too."""

_NONCE: Final = 32
_KEY: Final = 16
"""Bytes of what a peer proves its token with."""

_Sized: TypeAlias = messages.Records | messages.Replicate | messages.Entries


encode: Final[Callable[[Message], bytes]] = msgspec.msgpack.Encoder().encode
"""Returns the head of the frame of a message."""


def decode(kind: int, head: bytes, payload: memoryview) -> Message:
    """Return the message of a frame whose payload fits it.

    Raises:
        RemoteProtocolError: the kind is not known, or the bytes are no such message.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        raise RemoteProtocolError(f"the message kind {kind} is unknown")
    try:
        message = decoder.decode(head)
    # Text that is no UTF-8, and arrays in arrays without end, have errors of their own.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        name = MESSAGES[kind].__name__
        raise RemoteProtocolError(f"{name} is malformed: {error}") from error
    check = _CHECKS.get(type(message))
    if check is None:
        reason = _bare(message, len(payload)) if payload else ""
    else:
        reason = check(message, len(payload))
    if reason:
        raise RemoteProtocolError(f"{type(message).__name__}: {reason}")
    return message


def split(payload: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    """Return the batches of a payload, which are not copied."""
    return [payload[a:b] for a, b in pairwise(accumulate(sizes, initial=0))]


# Each says what is wrong with a message and so many bytes of payload, if anything.


def _filled(_: Message, payload: int) -> str:
    return "" if payload else "there is no payload"


def _bare(_: Message, payload: int) -> str:
    return f"a payload of {payload} bytes, there must be none" if payload else ""


def _free(_: Message, __: int) -> str:
    return ""


def _sized(message: _Sized, payload: int) -> str:
    if 0 in message.sizes or sum(message.sizes) != payload:
        return f"batches of {sum(message.sizes)} bytes in a payload of {payload}"
    return ""


def _records(message: messages.Records, payload: int) -> str:
    if len(message.llsns) != len(message.sizes):
        return f"{len(message.llsns)} positions for {len(message.sizes)} batches"
    return _sized(message, payload)


def _rows(message: messages.Rows, payload: int) -> str:
    if bool(message.positions) != bool(payload):
        return f"{len(message.positions)} positions with {payload} bytes of records"
    if message.found and len(message.found) != len(message.positions):
        return f"{len(message.found)} of the keys have {len(message.positions)} records"
    return ""


def _commit(message: messages.Commit, payload: int) -> str:
    cuts = message.cuts
    if any(a.log == b.log and a.version >= b.version for a, b in pairwise(cuts)):
        return "the cuts of a log are not in the order of versions"
    return _bare(message, payload)


def _hello(message: messages.Hello, payload: int) -> str:
    if message.nonce and (len(message.nonce), len(message.key)) != (_NONCE, _KEY):
        return f"a nonce of {len(message.nonce)} and a key of {len(message.key)} bytes"
    if message.version_min > message.version_max:
        return f"versions {message.version_min} to {message.version_max}"
    return _bare(message, payload)


def _challenge(message: messages.Challenge, payload: int) -> str:
    if len(message.nonce) != _NONCE:
        return f"a nonce of {len(message.nonce)} bytes, it has {_NONCE}"
    return _bare(message, payload)


def _welcome(message: messages.Welcome, payload: int) -> str:
    if message.window_bytes < message.frame_bytes_max:
        return "the window does not hold the largest frame"
    return _bare(message, payload)


def _call(message: messages.Call, payload: int) -> str:
    if len(message.call) != _CALL_BYTES:
        return f"a call id of {len(message.call)} bytes, it has {_CALL_BYTES}"
    return _filled(message, payload)


def _execute(message: messages.Execute, payload: int) -> str:
    if len(message.call) > _IDENTITY_BYTES_MAX:
        return (
            f"an identity of {len(message.call)} bytes, at most {_IDENTITY_BYTES_MAX}"
        )
    return _filled(message, payload)


# Any other message has no payload.
_CHECKS: Final[dict[type[Message], Callable[[Any, int], str]]] = {
    messages.Append: _filled,
    messages.AppendTo: _filled,
    messages.Call: _call,
    messages.CallResult: _free,
    messages.SnapshotPart: _free,
    messages.Rows: _rows,
    messages.RunPart: _free,
    messages.Execute: _execute,
    messages.Consensus: _filled,
    messages.Executed: _free,
    messages.Records: _records,
    messages.Replicate: _sized,
    messages.Entries: _sized,
    messages.Commit: _commit,
    messages.Hello: _hello,
    messages.Challenge: _challenge,
    messages.Welcome: _welcome,
}
