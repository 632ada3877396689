"""Directories of tables: copies go on, take their place whole, and trash goes."""

from __future__ import annotations

import contextlib
import errno
import zlib
from pathlib import Path
from typing import Any

import pytest

from braidlog import durable
from braidlog.errors import MissingFileError, UnavailableError
from braidlog.node.tables.files import DirectoryFiles
from braidlog.wire.rows import PinnedFile

TABLE = bytes(range(16))
OTHER = bytes(range(1, 17))
CONTENT = {"CURRENT": b"1", "0a/1.run": b"some bytes", "0a/empty": b""}
FILES = [PinnedFile(p, len(data), zlib.crc32(data)) for p, data in CONTENT.items()]


def content(files: DirectoryFiles, table: bytes = TABLE) -> dict[str, bytes]:
    root = files.path(table)
    found = [path for path in root.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def copy(files: DirectoryFiles) -> None:
    for file, offset in zip(FILES, files.staged(TABLE, FILES).values(), strict=True):
        data = CONTENT[file.path]
        for at in range(offset, len(data), 3):
            files.write(TABLE, file.path, at, data[at : at + 3])
        assert files.check(TABLE, file)


def use(files: DirectoryFiles, data: bytes = b"old") -> None:
    files.path(TABLE).mkdir(parents=True)
    (files.path(TABLE) / "CURRENT").write_bytes(data)


def test_a_copy_takes_the_place_of_what_is_there(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path / "tables")
    assert files.tables() == []
    assert not files.has(TABLE)
    use(files)
    copy(files)
    assert content(files) == {"CURRENT": b"old"}
    files.install(TABLE, FILES)
    assert content(files) == CONTENT
    assert [path.name for path in files.path(TABLE).parent.iterdir()] == [TABLE.hex()]


def test_a_copy_goes_on_and_drops_what_it_does_not_need(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    files.staged(TABLE, FILES)
    files.write(TABLE, "0a/1.run", 0, b"some")
    files.write(TABLE, "0a/9.run", 0, b"of an earlier version")
    files.write(TABLE, "CURRENT", 0, b"longer")
    assert files.staged(TABLE, FILES) == {"CURRENT": 0, "0a/1.run": 4, "0a/empty": 0}
    copy(files)
    files.install(TABLE, FILES)
    assert content(files) == CONTENT


def test_damage_is_found_before_it_is_in_use(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    files.staged(TABLE, FILES)
    files.write(TABLE, "0a/1.run", 0, b"some bites")
    assert not files.check(TABLE, FILES[1])
    assert files.staged(TABLE, FILES)["0a/1.run"] == 0
    with pytest.raises(MissingFileError):
        files.install(TABLE, FILES)
    assert not files.has(TABLE)


def test_cut_short_anywhere_it_is_the_old_one_or_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rename and each sync fails once, the one after the other."""
    seen = set()
    for step in range(40):
        files = DirectoryFiles(tmp_path / str(step))
        use(files)
        copy(files)
        left = [step]

        def failing(real: Any, left: list[int] = left) -> Any:
            def call(*arguments: Any) -> Any:
                if left[0] == 0:
                    raise OSError(errno.EIO, "input/output error")
                left[0] -= 1
                return real(*arguments)

            return call

        with monkeypatch.context() as patched:
            patched.setattr(durable, "sync", failing(durable.sync))
            patched.setattr(durable, "move", failing(durable.move))
            with contextlib.suppress(UnavailableError):
                files.install(TABLE, FILES)
        again = DirectoryFiles(tmp_path / str(step))
        assert again.has(TABLE)
        found = content(again)
        assert found in ({"CURRENT": b"old"}, CONTENT)
        seen.add(found["CURRENT"])
        again.tables()
        assert not list((tmp_path / str(step)).glob("*.trash-*"))
        if left[0] > 0:
            break
    else:
        pytest.fail("it never came to an end")
    assert seen == {b"old", b"1"}


def test_what_is_taken_away_does_not_come_back(tmp_path: Path) -> None:
    files = DirectoryFiles(tmp_path)
    use(files)
    copy(files)
    (tmp_path / OTHER.hex()).mkdir()
    (tmp_path / "notes").mkdir()
    (tmp_path / ("x" * 32)).mkdir()
    (tmp_path / f"{OTHER.hex()}.trash-0").mkdir()
    assert files.tables() == [TABLE, OTHER]
    assert not (tmp_path / f"{OTHER.hex()}.trash-0").exists()
    files.trash(TABLE)
    files.trash(TABLE)
    assert files.tables() == [OTHER]
    assert not files.has(TABLE)
