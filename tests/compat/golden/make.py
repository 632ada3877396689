"""Make the golden directory of the version that this build writes.

    PYTHONPATH=tests python tests/compat/golden/make.py v1
    PYTHONPATH=tests python tests/compat/golden/make.py nulls

Done once for each released format. A golden file is never made again: a build that
cannot read it is wrong.
"""

import json
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import braidlog
from compat import workload
from compat.contents import contents


def main(version: str) -> None:
    target = Path(__file__).parent / version
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        closed, crashed = Path(scratch, "closed"), Path(scratch, "crashed")
        workload.write(closed, crashed=crashed)
        expected: dict[str, Any] = {"written_by": braidlog.__version__}
        for directory in (closed, crashed):
            _pack(directory, target / f"{directory.name}.zip")
            with braidlog.open(directory, read_only=True) as node:
                expected[directory.name] = contents(node)
    _write(expected, target / "expected.json")


def make_nulls() -> None:
    """Make the directory with null values, `nulls.zip`, and what is in it."""
    target = Path(__file__).parent
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch, "nulls")
        workload.write_nulls(directory)
        _pack(directory, target / "nulls.zip")
        with braidlog.open(directory, read_only=True) as node:
            _write(contents(node), target / "nulls.json")


def _write(expected: dict[str, Any], to: Path) -> None:
    text = json.dumps(expected, sort_keys=True, ensure_ascii=False)
    to.write_text(text + "\n")


def tables() -> None:
    """Make `tables.zip`: a directory whose format older builds refuse."""
    with tempfile.TemporaryDirectory() as scratch:
        workload.write_tables(Path(scratch, "tables"))
        _pack(Path(scratch, "tables"), Path(__file__).parent / "tables.zip")


def _pack(directory: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for path in sorted(directory.rglob("*")):
            # A fixed date, so that equal bytes make an equal archive.
            info = zipfile.ZipInfo(str(path.relative_to(directory)))
            info.compress_type = zipfile.ZIP_DEFLATED
            if path.is_file():
                file.writestr(info, path.read_bytes(), compresslevel=9)


if __name__ == "__main__":
    make_nulls() if sys.argv[1:] == ["nulls"] else main(*sys.argv[1:])
