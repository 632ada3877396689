"""What tests of programs that use a log need: logs in memory, clusters, interrupts.

Nothing in the package imports it but the command line. What only tests of Braidlog use
is in `tests`.
"""

from braidlog.testing.memory import MemoryStore

__all__ = ["MemoryStore"]
