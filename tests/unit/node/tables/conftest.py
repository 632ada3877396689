"""Nothing here asks anything of a disk but that it keeps files."""

from memory_path import tmp_path as tmp_path
