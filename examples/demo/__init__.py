"""The main job on real input: import, crash, resume, replay, compare, analyse, draw.

``run_demo`` takes the change history of a git repository (or a recorded one), stores
every change in a log, and kills the importing process with SIGKILL on the way. It then
resumes at the end of the log, replays the log into a file tree, compares that with the
files of git, and lets Spark count over the same log.
"""

from __future__ import annotations

from examples.demo.options import DemoError, DemoOptions
from examples.demo.report import DemoReport
from examples.demo.run import run_demo

__all__ = ["DemoError", "DemoOptions", "DemoReport", "run_demo"]
