"""What tests of programs that use a log need."""

from braidlog.testing.memory import MemoryLog, MemoryPending
from braidlog.testing.node import MemoryStore

__all__ = ["MemoryLog", "MemoryPending", "MemoryStore"]
