"""The code of the documents that needs Spark runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.testing.cluster import LocalCluster
from docs.documents import DOCUMENTS, ROOT, blocks, name
from docs.running import run

DOCUMENT = ROOT / "docs" / "spark.md"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.timeout(300),  # Every example of a document.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.parametrize(
    "document",
    [d for d in DOCUMENTS if any("spark" in block.words for block in blocks(d))],
    ids=name,
)
def test_python_blocks_run_up_to_those_with_spark(
    spark: Any, document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the session that is there; `tests/docs` runs the other blocks."""
    monkeypatch.chdir(tmp_path)
    chosen = []
    for block in blocks(document):
        if block.words[:1] == ("python",) and "cluster" not in block.words:
            text = block.text
            # Spark has a working directory of its own, where it was started.
            for path in ("data", "there"):
                text = text.replace(f'"{path}"', repr(str(tmp_path / path)))
            chosen.append(replace(block, text=text))
    run(document, chosen)


def test_the_examples_run(
    spark: Any,
    cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with braidlog.open("data") as node:
        node.create_log("orders").append_many([b"a", b"b"], keys=[b"k", None])
        paid = b'{"currency": "EUR", "amount": 5, "by": "card"}'
        node.create_log("payments").append(paid, key=b"k")
        goods = node.create_log("goods")
        node.create_table("stock", log="goods", indexes={"by_city": "json:/city"})
        goods.append(b'{"city": "Oslo", "price": 3.5}', key=b"tea")
        goods.append(b'{"city": "Rome", "price": 1}', key=b"milk")
    text = DOCUMENT.read_text()
    # Spark has a working directory of its own, the one in which it was started.
    text = text.replace('"data/"', repr(str(tmp_path / "data")))
    text = text.replace('"checkpoint/"', repr(str(tmp_path / "checkpoint")))
    names: dict[str, Any] = {"spark": spark}
    with braidlog.connect(cluster.seeds) as client:
        if "orders" in client.logs():
            client.delete_log("orders")
        client.create_log("orders").append_many([b"a", b"b", b"c"])
    text = text.replace('"node1:7400,node2:7400"', repr(cluster.seeds))
    for example in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
        exec(example, names)  # noqa: S102, RUF100
    assert names["from_cluster"].count() == 3
    found = names["keys"].orderBy("position").collect()
    assert found[:2] == [(1, bytearray(b"k")), (2, None)]
    assert names["orders"].where("value = 'new'").count() == 3
    assert names["orders"].where("value = 'tick'").count() % 5 == 0
    assert names["cheap"].collect() == [(bytearray(b"milk"), "Rome")]
    assert names["amounts"].collect() == [("k", 5, "EUR")]
    assert names["query"].lastProgress["numInputRows"] == 2
    assert names["behind"] == {1: 0}
    assert "there are: 'goods', 'orders', 'payments'" in capsys.readouterr().out
