"""What procedures may use, and what they must not, with what to use instead.

Only what gives the same value for the same arguments everywhere is allowed. Lint and
guard read the same tables, so that what one lets pass the other does not refuse.
"""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, BuiltinMethodType, FunctionType, ModuleType
from typing import Any, Final

_TIME: Final = "ctx.now is the time of the command"
_RANDOM: Final = "ctx.random draws from the seed in the log"
_UUID: Final = "ctx.uuid() draws from the seed in the log"
_WORLD: Final = "take it as an argument, or declare effects=True"
_THREADS: Final = "a procedure is one thread; the host runs partitions side by side"
_CACHE: Final = "keep it in the state, or compute it again"
_CODE: Final = "write the code out: the content hash covers what can be seen"
_ORDER: Final = "compare values, and sort by a key of your own"

BUILTINS: Final = {
    "open": _WORLD,
    "input": _WORLD,
    "print": "return it; commands are executed again at replay",
    "breakpoint": "debug a test of the procedure",
    "help": "leave it out",
    "exit": "raise Abort",
    "quit": "raise Abort",
    "SystemExit": "raise Abort",
    "KeyboardInterrupt": "raise Abort",
    "eval": _CODE,
    "exec": _CODE,
    "compile": _CODE,
    "globals": _CODE,
    "locals": _CODE,
    "vars": _CODE,
    "id": _ORDER,
    "hash": "use hashlib: hashes of text are salted in each process",
}
"""Built-in names that a procedure must not use, and what to do instead."""

MODULES: Final[dict[str, dict[str, str]]] = {
    "__future__": {},
    "abc": {},
    "apsw": {},  # Its exceptions; see `instead_of_member`.
    "base64": {},
    "binascii": {},
    "bisect": {},
    "braidlog.app": {},
    "braidlog.errors": {},
    "braidlog.types": {},
    "builtins": BUILTINS,
    "collections": {},
    "contextlib": {},
    "copy": {},
    "dataclasses": {},
    "datetime": {
        "datetime.now": _TIME,
        "datetime.utcnow": _TIME,
        "datetime.today": _TIME,
        "date.today": _TIME,
        "date.fromtimestamp": "it uses the local zone: add a timedelta to a date",
        "datetime.utcfromtimestamp": "use fromtimestamp(seconds, UTC)",
    },
    "decimal": {},
    "enum": {},
    "fractions": {},
    "functools": {"lru_cache": _CACHE, "cache": _CACHE, "cached_property": _CACHE},
    "hashlib": {},
    "heapq": {},
    "hmac": {},
    "ipaddress": {},
    "itertools": {},
    "json": {},
    "math": {},
    "numbers": {},
    "operator": {},
    "re": {},
    "string": {},
    "struct": {},
    "textwrap": {},
    "types": {},
    "typing": {},
    "typing_extensions": {},
    "unicodedata": {},
    "urllib.parse": {},
    "uuid": {"uuid1": _UUID, "uuid4": _UUID, "getnode": _WORLD},
    "zlib": {},
}
"""Modules that a procedure may use, with the members that it must not."""

_INSTEAD: Final = {
    "time": _TIME,
    "random": _RANDOM,
    "secrets": _RANDOM,
    "os": _WORLD,
    "posix": _WORLD,
    "sys": _WORLD,
    "io": _WORLD,
    "pathlib": _WORLD,
    "glob": _WORLD,
    "shutil": _WORLD,
    "socket": _WORLD,
    "ssl": _WORLD,
    "http": _WORLD,
    "urllib": _WORLD,
    "subprocess": _WORLD,
    "platform": _WORLD,
    "locale": "format numbers and texts by code of your own",
    "zoneinfo": "keep UTC: the rules of zones are files that change",
    "logging": "return it; commands are executed again at replay",
    "sqlite3": "ctx.execute is the state",
    "threading": _THREADS,
    "multiprocessing": _THREADS,
    "concurrent": _THREADS,
    "asyncio": _THREADS,
    "queue": _THREADS,
    "weakref": "what it sees depends on when memory is freed",
    "gc": "what it sees depends on when memory is freed",
    "ctypes": _CODE,
    "importlib": _CODE,
    "inspect": _CODE,
    "pickle": "use json, or keep values of the log: its bytes differ by version",
    "statistics": "use integers, Decimal or math.fsum",
    "numpy": "its sums depend on the CPU: use integers, Decimal or math.fsum",
    "pandas": "its sums depend on the CPU: use integers, Decimal or math.fsum",
}
_SPARE: Final = "take its result as an argument, or declare effects=True"

LIBM_EXACT: Final = frozenset(
    {
        *("ceil", "comb", "copysign", "degrees", "dist", "fabs", "factorial", "floor"),
        *("fmod", "frexp", "fsum", "gcd", "inf", "isclose", "isfinite", "isinf"),
        *("isnan", "isqrt", "lcm", "ldexp", "modf", "nan", "nextafter", "perm", "pi"),
        *("e", "prod", "radians", "remainder", "sqrt", "tau", "trunc", "ulp"),
    }
)
"""Members of `math` whose results do not depend on the C library."""

# Where C parts say that they live.
_HOMES: Final = {
    **dict.fromkeys(
        ["_blake2", "_hashlib", "_md5", "_sha1", "_sha2", "_sha3"], "hashlib"
    ),
    **dict.fromkeys(["_sha256", "_sha512"], "hashlib"),
    "_io": "io",
    "_pydatetime": "datetime",
    "_pydecimal": "decimal",
    "posix": "os",
}


def home(module: str) -> str:
    """Return the module that a C part belongs to."""
    found = _HOMES.get(module, module)
    if found not in MODULES and found.lstrip("_") in MODULES:
        return found.lstrip("_")
    return found


def is_allowed_module(module: str) -> bool:
    """Say whether a procedure may use a module."""
    return _entry(module) is not None


def _entry(module: str) -> dict[str, str] | None:
    parts = home(module).split(".")
    for length in range(len(parts), 0, -1):
        found = MODULES.get(".".join(parts[:length]))
        if found is not None:
            return found
    return None


def instead_of_module(module: str) -> str | None:
    """Return what to use instead of a module; None if it may be used."""
    if is_allowed_module(module):
        return None
    return _INSTEAD.get(home(module).split(".")[0].lstrip("_"), _SPARE)


def instead_of_member(module: str, member: str) -> str | None:
    """Return what to use instead of ``module.member``; None if it may be used."""
    entry = _entry(module)
    if entry is None:
        return instead_of_module(module)
    if home(module) == "apsw" and not member.split(".")[-1].endswith("Error"):
        return "ctx.execute is the state"
    return entry.get(member)


def name_of(value: Any) -> tuple[str, str] | None:
    """Return module and name of a module, class or function; None for other values."""
    if isinstance(value, ModuleType):
        return value.__name__, ""
    if isinstance(value, (BuiltinFunctionType, BuiltinMethodType)):
        owner = value.__self__
        if isinstance(owner, ModuleType) or owner is None:
            return str(value.__module__ or "builtins"), value.__qualname__
        kind = owner if isinstance(owner, type) else type(owner)
        return str(kind.__module__), f"{kind.__qualname__}.{value.__name__}"
    if isinstance(value, (FunctionType, type)):
        return str(value.__module__), value.__qualname__
    if (function := getattr(value, "__func__", None)) is not None:
        return str(function.__module__), function.__qualname__
    return None


def refusal(value: Any) -> tuple[str, str] | None:
    """Return what a value is and what to use instead; None if it may be used."""
    named = name_of(value)
    if named is None:
        return None
    module, member = named
    instead = instead_of_member(module, member) if member else instead_of_module(module)
    if instead is None:
        return None
    return f"{home(module)}.{member}".rstrip("."), instead


def is_library(module: str) -> bool:
    """Say whether a module is part of Python or of an installed package."""
    top = module.split(".")[0]
    if top in sys.stdlib_module_names or top == "braidlog":
        return True
    file = str(getattr(sys.modules.get(module), "__file__", None) or "")
    return "site-packages" in file or "dist-packages" in file
