"""Opening a directory in a thread that cannot be stopped."""

from __future__ import annotations

import os
import threading
from typing import Any

from braidlog.storage.node import Node, open_node

__all__ = ["Opening"]


class Opening:
    """An open in a thread, which whoever wanted it may leave at any moment."""

    def __init__(self, path: str | os.PathLike[str], options: dict[str, Any]) -> None:
        """Remember what to open."""
        self._path = path
        self._options = options
        self._lock = threading.Lock()
        self._node: Node | None = None
        self._unwanted = False

    def run(self) -> Node:
        """Open, in a thread."""
        node = open_node(self._path, **self._options)
        with self._lock:
            self._node = node
            unwanted = self._unwanted
        if unwanted:
            node.close()
        return node

    def give_up(self) -> None:
        """Close what was opened, or will be: nobody else has it."""
        with self._lock:
            self._unwanted = True
            node = self._node
        if node is not None:
            node.close()
