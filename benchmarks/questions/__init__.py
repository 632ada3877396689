"""Every question, in printing order."""

from benchmarks.contest import Question
from benchmarks.plan import Plan
from benchmarks.questions import (
    bulk,
    concurrent,
    core,
    index_size,
    iterate,
    lookup,
    one_caller,
    pipelined,
    reopen,
    scan,
)

QUESTIONS: tuple[Question[Plan], ...] = (
    one_caller,
    concurrent,
    core,
    pipelined,
    bulk,
    scan,
    iterate,
    lookup,
    reopen,
    index_size,
)
