"""Tables of Delta and Iceberg follow an archive; skipped where the packages are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.archive import Manifest
from braidlog.archive.place import Place
from braidlog.errors import InvalidArgumentError
from braidlog.pipelines import lakes
from braidlog.pipelines.archive_job import archive
from braidlog.pipelines.lakes import Lakes
from braidlog.sources.origin import Origin

deltalake = pytest.importorskip("deltalake", reason="needs the extra lake")
pytest.importorskip("pyiceberg", reason="needs the extra lake")


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    place = "PYICEBERG_CATALOG__TEST__"
    monkeypatch.setenv(f"{place}URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv(f"{place}WAREHOUSE", f"file://{tmp_path}/warehouse")
    # It reads the environment when it is imported, which another test may have done.
    config = pytest.importorskip("pyiceberg.utils.config")
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", config.Config())
    return {"delta": True, "iceberg": "test.space.log", "workers": 1}


class Stopped(BaseException):
    """The run ends here."""


def positions(tmp_path: Path) -> tuple[list[int], list[int]]:
    from pyiceberg.catalog import load_catalog

    delta = deltalake.DeltaTable(tmp_path / "a").to_pyarrow_table()
    iceberg = load_catalog("test").load_table("space.log").scan().to_arrow()
    return sorted(delta["position"].to_pylist()), sorted(
        iceberg["position"].to_pylist()
    )


def test_tables_have_what_the_archive_has(
    tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = Origin("log", path=str(tmp_path / "data"))
    with braidlog.open(tmp_path / "data") as node:
        log = node.create_log("log")
        options |= {"log": log}
        log.append_many(
            [b"v%d" % i for i in range(100)],
            timestamps=range(100),
            headers=[[("h", b"%d" % i)] for i in range(100)],
        )
        archive(origin, tmp_path / "a", until=30, **options | {"delta": False})
        archive(origin, tmp_path / "a", until=60, **options)
        assert positions(tmp_path) == (list(range(1, 61)),) * 2
        # A run that stops between the two commits is finished by the next one, and
        # the cursor has not moved before.
        follow = lakes._follow_iceberg

        def stopping(name: str, place: Place, manifest: Manifest) -> int:
            if manifest.end == 101:
                raise Stopped
            return follow(name, place, manifest)

        with monkeypatch.context() as patch:
            patch.setattr(lakes, "_follow_iceberg", stopping)
            with pytest.raises(Stopped):
                archive(origin, tmp_path / "a", **options)
        assert log.cursors()[0].position == 61
        report = archive(origin, tmp_path / "a", **options)
        assert report.unchanged
        assert positions(tmp_path) == (list(range(1, 101)),) * 2
        assert log.cursors()[0].position == 101
        table = deltalake.DeltaTable(tmp_path / "a").to_pyarrow_table()
        rows = table.sort_by("position").select(log.to_arrow().column_names)
        assert rows.cast(log.to_arrow().schema).equals(log.to_arrow())


def test_a_name_that_is_no_table_is_refused_before_any_work() -> None:
    with pytest.raises(InvalidArgumentError, match="write catalog"):
        Lakes(iceberg="table").check()
