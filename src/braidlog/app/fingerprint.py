"""The environment of procedures: what may make the same code give something else.

Hash seed, locale, time zone and environment variables are not part of it: procedures
do not see them. The CPU counts by what its mathematics gives, not by its name.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math
import platform
import struct
import sys
import unicodedata
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import apsw

from braidlog.app.errors import EnvironmentMismatchError
from braidlog.app.findings import Difference

EnvironmentRule: TypeAlias = Literal["refuse", "report", "off"]
"""What to do where commands were logged in another environment."""

_CPU_FLAGS: Final = frozenset(
    {"fma", "avx", "avx2", "avx512f", "sse4_1", "asimd", "sve", "fphp"}
)
_FUNCTIONS: Final = (
    *(math.sin, math.cos, math.tan, math.atan, math.exp, math.expm1, math.log),
    *(math.log2, math.log10, math.log1p, math.sinh, math.tanh, math.erf, math.lgamma),
    *(math.sqrt, math.cbrt, math.exp2),
)
_PROBES: Final = 64


@functools.cache
def environment(packages: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the facts, as values of the log; ``packages`` are what procedures use.

    Raises:
        importlib.metadata.PackageNotFoundError: a package is not installed.
    """
    version = importlib.metadata.version
    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "implementation": sys.implementation.name,
        "optimize": sys.flags.optimize,  # It removes assert statements.
        "unicode": unicodedata.unidata_version,
        "sqlite": f"{apsw.sqlite_lib_version()} {apsw.sqlite3_sourceid()}",
        "sqlite options": _sqlite_options(),
        "packages": {name: version(name) for name in ("apsw", "cbor2", *packages)},
        "float": f"{sys.float_info.mant_dig} {sys.float_info.max_exp}",
        "sum": float(sum([0.1] * 10)).hex(),
        "libm": _libm(),
        "braidlog": version("braidlog"),
        "release": platform.python_version(),
        "build": f"{platform.python_compiler()} {' '.join(platform.python_build())}",
        "machine": " ".join([platform.machine(), sys.byteorder, *platform.libc_ver()]),
        "cpu": _cpu_flags(),
    }


def _sqlite_options() -> list[str]:
    # The compiler is named among them; what it made is told by the rest.
    options = apsw.compile_options
    return sorted(name for name in options if not name.startswith("COMPILER="))


def _libm() -> str:
    """Return a hash of what the functions of the C library give."""
    digest = blake2b(digest_size=16)
    for function in _FUNCTIONS:
        for number in range(1, _PROBES):
            value = function(number * 0.7368062997 + number / 3)
            digest.update(struct.pack("<d", value))
    for number in range(1, _PROBES):
        digest.update(struct.pack("<d", (1 + number / 7) ** (number / 11)))
    return digest.hexdigest()


def _cpu_flags() -> list[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return []  # Not Linux.
    return sorted(_CPU_FLAGS & set(text.split()))


def compare(logged: Mapping[str, Any], here: Mapping[str, Any]) -> list[Difference]:
    """Return the facts that differ; those that only one side has do not count."""
    found = []
    for fact in logged.keys() & here.keys():
        one, other = logged[fact], here[fact]
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            for name in one.keys() | other.keys():
                if one.get(name) != other.get(name):
                    inner = f"{fact}.{name}"
                    found.append(Difference(inner, one.get(name), other.get(name)))
        elif one != other:
            found.append(_shortened(fact, one, other))
    return sorted(found, key=lambda each: each.fact)


def _shortened(fact: str, one: Any, other: Any) -> Difference:
    """Leave out what two lists have in common."""
    if isinstance(one, list) and isinstance(other, list):
        mine = [item for item in one if item not in other]
        return Difference(fact, mine, [item for item in other if item not in one])
    return Difference(fact, one, other)


def check(
    logged: Mapping[str, Any], here: Mapping[str, Any], rule: EnvironmentRule
) -> list[Difference]:
    """Return the differences that matter, or refuse them.

    Raises:
        EnvironmentMismatchError: there are some, and the rule is ``refuse``.
    """
    if rule == "off":
        return []
    found = [each for each in compare(logged, here) if each.matters]
    if found and rule == "refuse":
        listed = "; ".join(map(str, found))
        msg = f"commands were logged in another environment: {listed}"
        raise EnvironmentMismatchError(msg, differences=found)
    return found
