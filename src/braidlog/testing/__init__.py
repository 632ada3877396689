"""What tests of programs that use a log need."""

from braidlog.testing.memory import MemoryStore

__all__ = ["MemoryStore"]
