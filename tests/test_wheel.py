"""The built wheel works in an empty environment, without the source tree."""

import subprocess
import sys
from pathlib import Path

import pytest

SMOKE = "import braidlog, braidlog._native; print(braidlog.__version__)"


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


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_installed_wheel_imports(installed: Path, tmp_path: Path) -> None:
    printed = subprocess.run(
        [installed / "python", "-I", "-c", SMOKE],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert printed.strip() == "0.1.0"
