"""The folder from which Spark starts quickly."""

from pathlib import Path

import pytest

from braidlog.spark.home import ensure_home, make_home


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "pyspark"
    for name in ("bin", "jars", "sbin", "python"):
        (package / name).mkdir(parents=True)
    return package


def test_it_has_programs_and_jars_and_no_python(package: Path, tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    ensure_home(package, environ)
    home = Path(environ["SPARK_HOME"])
    assert sorted(path.name for path in home.iterdir()) == ["bin", "jars", "sbin"]
    assert (home / "jars").resolve() == package / "jars"
    # Again, as another process would.
    again = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    ensure_home(package, again)
    assert again == environ


def test_what_moved_is_linked_anew(package: Path, tmp_path: Path) -> None:
    home = make_home(package, tmp_path / "home")
    moved = package.rename(tmp_path / "moved")
    assert make_home(moved, home) == home
    assert (home / "bin").resolve() == moved / "bin"
    assert sorted(path.name for path in home.iterdir()) == ["bin", "jars", "sbin"]


def test_what_is_said_stays(package: Path, tmp_path: Path) -> None:
    environ = {"SPARK_HOME": "/opt/spark"}
    ensure_home(package, environ)
    assert environ == {"SPARK_HOME": "/opt/spark"}
    nothing = {"XDG_CACHE_HOME": str(tmp_path)}
    ensure_home(tmp_path, nothing)
    (tmp_path / "file").touch()
    blocked = {"XDG_CACHE_HOME": str(tmp_path / "file")}
    ensure_home(package, blocked)
    assert "SPARK_HOME" not in nothing | blocked
