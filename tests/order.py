"""In which order several processes take the tests up: what takes long first.

Else one process is still busy with them when the others are done.
"""

from typing import Final

# Each process that gets a file of it starts a Java, Python workers and three nodes,
# which cost more than most of the tests.
TOGETHER: Final = "tests/spark/"

# Files, and folders of the rest of them: the longer they take, the earlier.
FIRST: Final = (
    TOGETHER,
    "tests/demo/",
    "tests/sim/test_applications.py",
    "tests/cluster/test_applications.py",
    "tests/docs/test_code.py",
    "tests/cluster/",
    "tests/unit/cli/cluster/test_up.py",
    "tests/process/",
    "tests/sim/",
    "tests/examples/",
    "tests/property/",
)


def group(file: str) -> str:
    """Return what is run in one process: the file, or its folder."""
    return TOGETHER if file.startswith(TOGETHER) else file


def rank(file: str) -> int:
    """Return the place of a file, or of a group; others of its place come as usual."""
    places = (n for n, each in enumerate(FIRST) if file.startswith(each))
    return next(places, len(FIRST))
