"""The main job on real input: import, crash, resume, replay, compare, analyse, draw.

``run_demo`` takes the change history of a git repository (or a recorded one), stores
every change in a log, kills the importing process with SIGKILL on the way, goes on from
where the log says it stopped, replays the log into a file tree and compares that with
what git says, and lets Spark count over the same log.
"""

from __future__ import annotations

from examples.demo.options import DemoError, DemoOptions
from examples.demo.report import DemoReport
from examples.demo.run import run_demo

__all__ = ["DemoError", "DemoOptions", "DemoReport", "run_demo"]
