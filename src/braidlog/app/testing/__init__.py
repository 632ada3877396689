"""For tests of applications: executes what they do twice, and compares."""

from braidlog.app.testing.twice import NotRepeatedError, TwoRuns, run_twice

__all__ = ["NotRepeatedError", "TwoRuns", "run_twice"]
