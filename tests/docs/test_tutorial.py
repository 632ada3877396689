"""The code of the tutorial is that of its program, which tests/spark runs."""

from docs.documents import ROOT, blocks

TUTORIAL = ROOT / "docs" / "tutorial.md"
PROGRAM = ROOT / "examples" / "spark" / "change_events.py"


def test_the_code_is_that_of_the_program() -> None:
    program = PROGRAM.read_text()
    shown = [block for block in blocks(TUTORIAL) if block.words == ("py",)]
    assert len(shown) > 4
    assert [block.line for block in shown if block.text not in program] == []
