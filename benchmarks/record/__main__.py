"""Bring the tables of documents up to date: ``python -m benchmarks.record``."""

import sys

from benchmarks.record import results, tables


def main() -> int:
    """Write the tables; say what has no record yet."""
    for path in tables.write():
        print(f"wrote {path}")
    for name in results.NAMES:
        if results.load(name) is None:
            print(f"no record of {name} yet")
    return 0


if __name__ == "__main__":
    sys.exit(main())
