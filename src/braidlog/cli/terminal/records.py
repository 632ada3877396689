r"""How a record looks: a line for people, JSON for programs, or the bare value.

Bytes that are not UTF-8, and characters that could steer a terminal, are escaped in
text. In JSON they become ``{"base64": "..."}`` (or ``{"hex": "..."}``), which no text
value can be mistaken for. A null value is null in JSON, ``\N`` in text, and nothing in
raw output.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import braidlog
from braidlog.cli.terminal.text import clock, printable

NULL: Final = "\\N"
"""A null value in text, as databases write it."""

Binary: TypeAlias = Literal["base64", "hex"]
Encoder: TypeAlias = "Callable[[braidlog.Record], bytes]"


def encoder(layout: str, *, binary: Binary, delimiter: bytes) -> Encoder:
    """Return the function that turns a record into what is printed for it."""
    if layout == "raw":
        return lambda record: (record.value or b"") + delimiter
    if layout == "json":
        return lambda record: _dump(record_object(record, binary)) + b"\n"
    return lambda record: _text(record).encode() + b"\n"


def record_object(record: braidlog.Record, binary: Binary) -> dict[str, Any]:
    """Return a record as a JSON object."""
    shown: dict[str, Any] = {
        "position": record.position,
        "timestamp": record.timestamp,
        "key": json_value(record.key, binary),
        "value": json_value(record.value, binary),
    }
    if record.headers:
        shown["headers"] = [
            [name, json_value(value, binary)] for name, value in record.headers
        ]
    return shown


def json_value(data: bytes | None, binary: Binary) -> str | dict[str, str] | None:
    """Return bytes as text where they are UTF-8, else as a marked encoding."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        if binary == "hex":
            return {"hex": data.hex()}
        return {"base64": base64.b64encode(data).decode()}


def escape(data: bytes | None) -> str:
    """Return bytes as one line of text that is safe on a terminal."""
    if data is None:
        return NULL
    return printable(data.decode(errors="backslashreplace"))


def _text(record: braidlog.Record) -> str:
    key = "" if record.key is None else escape(record.key)
    line = f"{record.position}\t{clock(record.timestamp)}\t{key}\t"
    line += escape(record.value)
    for name, value in record.headers:
        line += f"\t{escape(name.encode())}={escape(value)}"
    return line


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
