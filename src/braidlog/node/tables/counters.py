"""What the tables of a node count."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TableCounters"]


@dataclass(slots=True)
class TableCounters:
    """Totals since the start."""

    table_reads: int = 0
    table_rows: int = 0
    table_bytes: int = 0
    table_copies: int = 0
    table_copied_bytes: int = 0
    table_damages: int = 0
    table_reliefs: int = 0
