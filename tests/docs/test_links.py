"""Links between the documents lead somewhere, and nothing from outside is in them."""

import re
from pathlib import Path

import pytest

from docs.documents import DOCUMENTS, NOTES, ROOT, name

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_of(document: Path) -> str:
    """Return the document without its code."""
    return re.sub(
        r"^```.*?^```$|`[^`\n]*`", "", document.read_text(), flags=re.M | re.S
    )


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize("document", DOCUMENTS + NOTES, ids=name)
def test_links_resolve(document: Path) -> None:
    for link in _LINK.findall(text_of(document)):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_paths_in_backticks_exist(document: Path) -> None:
    """Paths of the repository that a document names are there."""
    tops = "benchmarks|docs|native|src|tests|examples|\\.ci"
    for path in re.findall(rf"`((?:{tops})/[\w./-]+)`", document.read_text()):
        if path.startswith("benchmarks/results/"):
            continue
        assert (ROOT / path).exists(), path


def test_every_document_is_reachable_from_the_readme() -> None:
    linked = {
        (document.parent / link.partition("#")[0]).resolve()
        for document in DOCUMENTS
        for link in _LINK.findall(text_of(document))
    }
    missing = [name(d) for d in DOCUMENTS[1:] if d not in linked]
    assert missing in ([], ["CHANGELOG.md"])
