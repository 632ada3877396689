"""Everything that a node says about its logs, as plain JSON values."""

import base64
import hashlib
from typing import Any

import braidlog


def contents(node: braidlog.Store) -> dict[str, Any]:
    """Read the whole node through the public interface."""
    return {name: _log(node.log(name)) for name in node.logs()}


def _log(log: braidlog.Log) -> dict[str, Any]:
    described = log.describe()
    return {
        "id": log.id,
        "created": described.created,
        "compression": described.compression,
        "retention_ms": described.retention_ms,
        "retention_bytes": described.retention_bytes,
        "first": log.first,
        "end": log.end,
        "cursors": {
            cursor.name: [cursor.position, cursor.pin, cursor.touched, cursor.lease]
            for cursor in log.cursors()
        },
        "records": [_record(record) for record in log.read()],
    }


def _record(record: braidlog.Record) -> list[Any]:
    return [
        record.position,
        record.timestamp,
        _text(record.key),
        _text(record.value),
        [[name, _text(value)] for name, value in record.headers],
    ]


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    if len(data) > 64:
        return f"{len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}"
    return base64.b64encode(data).decode()
