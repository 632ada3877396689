"""Links between the documents lead somewhere, and nothing from outside is in them."""

import re
from functools import cache
from pathlib import Path

from docs.documents import DOCUMENTS, NOTES, ROOT, name

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_of(document: Path) -> str:
    """Return the document without its code."""
    return re.sub(
        r"^```.*?^```$|`[^`\n]*`", "", document.read_text(), flags=re.M | re.S
    )


def linked(document: Path) -> list[str]:
    return _LINK.findall(text_of(document))


@cache
def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.M)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }


def resolves(document: Path, link: str) -> bool:
    """Tell whether the file is there, and the heading."""
    if "://" in link:
        return True
    path, _, anchor = link.partition("#")
    target = (document.parent / path).resolve() if path else document
    return target.exists() and (not anchor or anchor in anchors(target))


def test_links_resolve() -> None:
    links = [(each, link) for each in DOCUMENTS + NOTES for link in linked(each)]
    assert len(links) > 100
    broken = [(name(each), link) for each, link in links if not resolves(each, link)]
    assert broken == []


def test_paths_in_backticks_exist() -> None:
    """Paths of the repository that a document names are there."""
    tops = "benchmarks|docs|native|src|tests|examples|\\.ci"
    named = [
        (name(document), path)
        for document in DOCUMENTS
        for path in re.findall(rf"`((?:{tops})/[\w./-]+)`", document.read_text())
        if not path.startswith("benchmarks/results/")
    ]
    assert len(named) > 50
    assert [each for each in named if not (ROOT / each[1]).exists()] == []


def test_every_example_is_named_where_it_helps() -> None:
    """By a page that a user reads: not the changelog, and no list of tests."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text() for page in pages)
    text += "".join(page.read_text() for page in (ROOT / "docs/operating").glob("*.md"))
    programs = [
        path
        for path in (ROOT / "examples").rglob("[!_]*.py")
        if "demo" not in path.parts
    ]
    assert len(programs) > 12
    missing = [
        path.stem for path in programs if not re.search(rf"[/`]{path.stem}\.py\b", text)
    ]
    assert missing == [], "link or name each in README.md or a page of docs"


def test_every_document_is_reachable_from_the_readme() -> None:
    reached = {
        (document.parent / link.partition("#")[0]).resolve()
        for document in DOCUMENTS
        for link in linked(document)
    }
    missing = [name(d) for d in DOCUMENTS[1:] if d not in reached]
    assert missing in ([], ["CHANGELOG.md"])
