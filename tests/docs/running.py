"""Running the code blocks of a document, and comparing what they print.

Python blocks run in one namespace, and of the shell blocks the lines that call
`braidlog`. What the comments behind `print` say has to be printed.
"""

import contextlib
import io
import re
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from commands import said
from docs.documents import Block

_PRINTED = re.compile(r"^\s*print\(.*\) +# (.*)$", re.M)
# Take long, need the repository, or are shown to say what they do.
_NOT_RUN = re.compile(r"braidlog (demo|bench)\b")


def run(document: Path, chosen: Iterable[Block]) -> None:
    """Run blocks one after the other, in this directory."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in chosen:
        if block.words[0] == "python":
            _run_python(document, block, namespace)
        else:
            _run_shell(block)


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
        said(*command[1:], stdin=given, environment={"COLUMNS": "100"})
