"""Every question, in printing order."""

from benchmarks.contest import Question
from benchmarks.tables.plan import Plan
from benchmarks.tables.questions import (
    appends,
    backup,
    build,
    index,
    keyed,
    reopen,
)

QUESTIONS: tuple[Question[Plan], ...] = (build, keyed, index, reopen, appends, backup)
