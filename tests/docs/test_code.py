"""Code in the documents runs and prints what the comments behind it say.

The blocks of a document run in order, in one directory and one namespace: Python
blocks, and of the shell blocks the lines that call `braidlog`. Blocks marked `spark`
run only where Spark can.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from braidlog.testing.cluster import LocalCluster
from docs.documents import DOCUMENTS, Block, blocks, name

_PRINTED = re.compile(r"^\s*print\(.*\) +# (.*)$", re.M)
# Take long, need the repository, or are shown to say what they do.
_NOT_RUN = re.compile(r"braidlog (demo|bench)\b")

RUNNABLE = [
    document
    for document in DOCUMENTS
    if any(block.words[:1] == ("python",) for block in blocks(document))
    # Needs Spark throughout; tests/spark runs it.
    and document.name != "spark.md"
]


def _runs(block: Block, *, spark: bool) -> bool:
    if "cluster" in block.words:
        return False
    return block.words[0] in ("python", "sh") and (spark or "spark" not in block.words)


def _run_python(document: Path, block: Block, namespace: dict[str, Any]) -> None:
    # Blank lines, so that a traceback names the line of the document.
    source = "\n" * (block.line - 1) + block.text
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, document, "exec"), namespace)
    expected = _PRINTED.findall(block.text)
    calls = len(re.findall(r"\bprint\(", block.text))
    if expected and len(expected) == calls:
        assert printed.getvalue().splitlines() == expected
    else:
        assert set(expected) <= set(printed.getvalue().splitlines())


def _run_shell(block: Block) -> None:
    lines = [line.split("  #")[0] for line in block.text.splitlines()]
    for line in lines:
        *producer, last = line.split(" | ")
        command = shlex.split(last)
        if command[:1] != ["braidlog"] or _NOT_RUN.match(last):
            continue
        given = None
        if producer:
            given = subprocess.run(
                shlex.split(producer[0]), check=True, capture_output=True
            ).stdout
        result = subprocess.run(
            [sys.executable, "-m", "braidlog", *command[1:]],
            check=False,
            capture_output=True,
            input=given,
            env=os.environ | {"COLUMNS": "100"},
        )
        assert result.returncode == 0, (line, result.stderr.decode())


def _run(document: Path, *, spark: bool) -> None:
    _run_all(
        document, [b for b in blocks(document) if b.words and _runs(b, spark=spark)]
    )


def _run_all(document: Path, chosen: list[Block]) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in chosen:
        if block.words[0] == "python":
            _run_python(document, block, namespace)
        else:
            _run_shell(block)


def _run_with_spark(document: str) -> None:
    _run(Path(document), spark=True)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BRAIDLOG_DATA", raising=False)


@pytest.mark.timeout(180)
@pytest.mark.process
@pytest.mark.parametrize("document", RUNNABLE, ids=name)
def test_the_code_runs(document: Path) -> None:
    _run(document, spark=False)


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
        _run_all(document, [b for b in blocks(document) if "cluster" in b.words])


@pytest.mark.timeout(180)
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("document", RUNNABLE, ids=name)
def test_the_spark_code_runs(document: Path) -> None:
    if not any("spark" in block.words for block in blocks(document)):
        pytest.skip("no Spark in this document")
    pytest.importorskip("pyspark")
    session = pytest.importorskip("braidlog.spark")
    from braidlog.errors import UnavailableError

    try:
        session.ensure_java()
    except UnavailableError as error:
        pytest.skip(str(error))
    # Spark resolves a relative path where its JVM was started: not in this process,
    # where another test may have started it elsewhere.
    program = (
        f"from docs import test_code; test_code._run_with_spark({str(document)!r})"
    )
    search = os.pathsep.join(sys.path)
    subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        env=os.environ | {"PYTHONPATH": search},
    )
