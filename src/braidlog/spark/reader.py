"""What readers of a directory and of a cluster have in common: columns and bounds."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.datasource import DataSourceReader, Filter

from braidlog.errors import TrimmedError
from braidlog.spark.filters import EVERYTHING, narrow
from braidlog.spark.options import ReadOptions
from braidlog.spark.plan import Bounds
from braidlog.spark.schema import Column

__all__ = ["BoundReader", "TakesFilters"]


class BoundReader(DataSourceReader):  # type: ignore[misc]
    """Knows what is asked for."""

    def __init__(self, options: ReadOptions, columns: tuple[Column, ...]) -> None:
        """Keep what was asked for; nothing is opened yet."""
        self.options = options
        self.columns = columns
        self.bounds = EVERYTHING.within(
            Bounds(
                EVERYTHING.begin if options.begin is None else options.begin,
                EVERYTHING.end if options.end is None else options.end,
                options.since,
                options.until,
            )
        )

    def refuse_trimmed(self, first: int) -> None:
        """Raise `TrimmedError` if records were asked for that are gone."""
        begin = self.options.begin
        if begin is not None and begin < first:
            raise TrimmedError(
                f"log {self.options.log!r} was trimmed: it begins at position {first}, "
                f"option 'from' asks for {begin}",
                first=first,
            )


class TakesFilters(BoundReader):
    """A reader that takes filters over from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Tighten the bounds; return the filters that Spark must still apply."""
        bounds, left = narrow(filters)
        self.bounds = self.bounds.within(bounds)
        return left
