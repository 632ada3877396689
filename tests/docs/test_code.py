"""Code in the documents runs and prints what the comments behind it say.

The blocks of a document run in order, in one directory and one namespace. Those marked
`spark` run in `tests/spark`.
"""

from pathlib import Path

import pytest

from braidlog.testing.cluster import LocalCluster
from docs.documents import DOCUMENTS, Block, blocks, name
from docs.running import run

RUNNABLE = [
    document
    for document in DOCUMENTS
    if any(block.words[:1] == ("python",) for block in blocks(document))
    # Needs Spark throughout; tests/spark runs it.
    and document.name != "spark.md"
]


def _runs(block: Block) -> bool:
    return block.words[:1] in (("python",), ("sh",)) and not (
        {"cluster", "spark"} & set(block.words)
    )


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BRAIDLOG_DATA", raising=False)


@pytest.mark.timeout(180)
@pytest.mark.process
@pytest.mark.parametrize("document", RUNNABLE, ids=name)
def test_the_code_runs(document: Path) -> None:
    run(document, filter(_runs, blocks(document)))


@pytest.mark.timeout(180)
@pytest.mark.process
@pytest.mark.parametrize(
    "document",
    [d for d in DOCUMENTS if any("cluster" in b.words for b in blocks(d))],
    ids=name,
)
def test_the_code_for_a_cluster_runs(
    document: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalCluster(3, directory=Path("cluster")) as cluster:
        monkeypatch.setenv("BRAIDLOG_CLUSTER", cluster.seeds)
        run(document, [b for b in blocks(document) if "cluster" in b.words])
