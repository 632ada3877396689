"""The built wheel works in an empty environment, without the source tree."""

import subprocess
import sys
from pathlib import Path

import pytest

import braidlog

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180)]

IMPORT = "import braidlog, braidlog._native; print(braidlog.__version__)"

APPEND_AND_READ = """
import braidlog
with braidlog.open("data") as node:
    log = node.create_log("log")
    log.append_many([b"a", b"b"])
with braidlog.open("data", read_only=True) as node:
    print(*(record.value.decode() for record in node.log("log").read()))
"""


@pytest.fixture(scope="module")
def installed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return the folder of executables of an environment with only the wheel."""
    directory: Path | None = request.config.getoption("--wheel")
    if directory is None:
        pytest.skip("`make wheel` runs this")
    [wheel] = directory.glob("*.whl")
    environment = tmp_path_factory.mktemp("wheel") / "venv"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    executables = environment / "bin"
    subprocess.run(
        [executables / "python", "-m", "pip", "install", "--quiet", wheel],
        check=True,
    )
    return executables


def printed(installed: Path, directory: Path, program: str) -> str:
    """Run a program away from the source tree; return what it prints."""
    return subprocess.run(
        [installed / "python", "-I", "-c", program],
        cwd=directory,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_imports_without_extras(installed: Path, tmp_path: Path) -> None:
    assert printed(installed, tmp_path, IMPORT) == braidlog.__version__


def test_appends_and_reads(installed: Path, tmp_path: Path) -> None:
    assert printed(installed, tmp_path, APPEND_AND_READ) == "a b"


def test_has_the_command(installed: Path, tmp_path: Path) -> None:
    command: list[str | Path] = [
        installed / "braidlog",
        "log",
        "list",
        "-d",
        tmp_path / "none",
    ]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 3
    assert result.stderr.startswith("error: no data directory")
