"""Logs what has changed: one form for all events of a node."""

from __future__ import annotations

import logging

from braidlog.metarepo.events import Event


def tell(log: logging.Logger, node: int, event: Event) -> None:
    """Log an event once; its name and fields stay fields of the line."""
    level = logging.WARNING if event.warning else logging.INFO
    fields = {"event": event.name, "node": node, **event.fields}
    log.log(level, "%s", event.text, extra=fields)
