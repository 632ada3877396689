"""What the demo is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["LOG", "NODES_MIN", "DemoError", "DemoOptions"]

LOG: Final = "changes"
"""Name of the log that the demo writes."""


NODES_MIN: Final = 3
"""So many nodes can lose one and go on."""


class DemoError(Exception):
    """The demo cannot go on; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of one run; without input and oracle the history of ``git`` is used."""

    git: Path = Path()
    input: Path | None = None
    oracle: Path | None = None
    data: Path | None = None
    out: Path = Path("demo-out")
    keep: bool = False
    spark: bool = True
    kills: int = 1
    nodes: int | None = None
    """Nodes of a local cluster to import through; None: an embedded log."""
    top: int = 10

    def check(self) -> None:
        """Refuse combinations that make no sense.

        Raises:
            DemoError: They do not.
        """
        if (self.input is None) != (self.oracle is None):
            raise DemoError(
                "--input and --oracle belong together: give both or neither"
            )
        for path in (self.input, self.oracle):
            if path is not None and not path.is_file():
                raise DemoError(f"{path} is not a file")
        if self.kills < 0:
            raise DemoError("--kills cannot be negative")
        if self.kills and self.nodes is not None and self.nodes < NODES_MIN:
            raise DemoError(
                f"{self.nodes} node(s) cannot go on without one of them: "
                f"take {NODES_MIN}, or --kills 0"
            )
        if self.data is not None and self.data.exists() and any(self.data.iterdir()):
            raise DemoError(
                f"{self.data} is not empty: the demo writes a new data directory, "
                "name one that does not exist"
            )
