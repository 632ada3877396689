"""Every question, in printing order."""

from benchmarks.app.plan import Plan
from benchmarks.app.questions import calls, effects, recovery, replays
from benchmarks.contest import Question

QUESTIONS: tuple[Question[Plan], ...] = (calls, effects, replays, recovery)
