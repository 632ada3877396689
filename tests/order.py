"""In which order several processes take the tests up: what takes long first.

Else one process is still busy with them when the others are done.
"""

from typing import Final

_SPARK: Final = "tests/spark/"

# Each process that gets a file of Spark starts a Java, Python workers and three nodes,
# which cost more than most of the tests; one of the others parses the whole source.
TOGETHER: Final = (_SPARK, "tests/test_")

# Files, and folders of the rest of them: the longer they take, the earlier.
FIRST: Final = (
    _SPARK,
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
    return next((each for each in TOGETHER if file.startswith(each)), file)


def rank(file: str) -> int:
    """Return the place of a file, or of a group; others of its place come as usual."""
    places = (n for n, each in enumerate(FIRST) if file.startswith(each))
    return next(places, len(FIRST))
