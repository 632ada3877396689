"""Log records as JSON, one object a line."""

from __future__ import annotations

import json
import logging
import time
from typing import Any


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and what was passed."""

    _known = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        seconds = time.gmtime(record.created)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", seconds)
        fields: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        extra = vars(record).items()
        fields |= {key: value for key, value in extra if key not in self._known}
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)
