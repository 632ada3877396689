"""What commands of benchmarks refuse before they measure."""

import argparse
import sys
from pathlib import Path

import pytest
from benchmarks import session


def parsed(monkeypatch: pytest.MonkeyPatch, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    session.add_options(parser, ["idle"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--directory", type=Path)
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    return session.parse(parser)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--directory", "s3://x"), "--directory 's3:/x' looks like a URI"),
        (("--rounds", "0"), "--rounds is 0, it must be at least 1"),
        (("--record", "--only", "idle"), "--record needs a whole run"),
    ],
)
def test_it_is_refused(
    words: tuple[str, ...],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        parsed(monkeypatch, *words)
    assert reason in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_home_is_expanded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parsed(monkeypatch, "--directory", "~/data").directory == tmp_path / "data"
