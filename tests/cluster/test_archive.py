"""A log of a real cluster, archived and trimmed, is read as if it never had been."""

from __future__ import annotations

from pathlib import Path

import pytest

import braidlog
from braidlog.archive import open_archive, verify
from braidlog.archive.rows import COLUMNS
from braidlog.pipelines.archive_job import archive
from braidlog.pipelines.audit_job import audit
from braidlog.pipelines.compact_job import compact
from braidlog.sources.origin import Origin
from braidlog.testing.cluster import LocalCluster


@pytest.mark.process
def test_streams_and_llsns_are_archived_in_the_order_of_positions(
    tmp_path: Path,
) -> None:
    with (
        LocalCluster(1, directory=tmp_path / "cluster") as cluster,
        braidlog.connect(cluster.seeds) as client,
    ):
        log = client.create_log("log", streams=2)
        for turn in range(20):
            values = [b"%d-%d" % (turn, number) for number in range(50)]
            log.append_many(values, keys=[b"%d" % number for number in range(50)])
        log.refresh()
        before, table = list(log.read()), log.to_arrow()
        origin = Origin("log", cluster=cluster.seeds)
        archive(origin, tmp_path / "a", bytes_per_file=4096, until=600, workers=1)
        report = archive(origin, tmp_path / "a", trim=True, workers=2)
        assert report.published["first"] == report.published["cursor"] == 1001
        assert log.refresh() == range(1001, 1001)
        log.append(b"behind")
        assert list(log.read(include_archive=True))[:-1] == before
        assert log.to_arrow(end=1001, include_archive=True) == table
        both = Origin("log", cluster=cluster.seeds, include_archive=True)
        latest = compact(both, tmp_path / "latest", workers=1)
        assert (latest.figures["records_read"], latest.figures["keys"]) == (1001, 50)
        audited = audit(both, tmp_path / "audit", workers=1).published
        assert (audited["begin"], audited["end"], audited["findings"]) == (1, 1002, [])
        found = open_archive(tmp_path / "a", log_id=log.id)
        assert verify(found).sound
        rows = found.to_arrow(columns=list(COLUMNS))
        assert set(rows["stream"].to_pylist()) == {
            s.stream for s in client.streams("log")
        }
        assert len(found.manifest.files[0].streams) == 2
