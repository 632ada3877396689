"""inspect, verify and repair: what they print of what the storage reports."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from unit.cli.conftest import Cli


@dataclass(frozen=True)
class Frame:
    segment: int
    offset: int
    kind: str
    ok: bool


@dataclass(frozen=True)
class Finding:
    path: str
    offset: int
    problem: str


@dataclass(frozen=True)
class Loss:
    log: str
    first: int
    end: int
    records: int


@dataclass(frozen=True)
class Report:
    segments: int = 2
    frames: int = 9
    records: int = 100
    bytes: int = 1 << 20
    findings: list[Finding] = field(default_factory=list)


class Files(ModuleType):
    """Stands in for `braidlog.storage.inspect`."""

    findings: list[Finding]
    losses: list[Loss]
    asked: list[Any]

    def frames(
        self, data: Path, segment: int, *, log: str | None, offset: int
    ) -> Iterator[Frame]:
        self.asked.append((segment, log, offset))
        return (Frame(segment, 48 * i, "batch", i != 2) for i in range(10**9))

    def verify(self, data: Path, *, progress: Callable[[int, int], None]) -> Report:
        progress(1, 2)
        return Report(findings=self.findings)

    def repair_plan(self, data: Path) -> SimpleNamespace:
        return SimpleNamespace(losses=self.losses)

    def repair(
        self, data: Path, target: Path, *, progress: Callable[[int, int], None]
    ) -> None:
        target.mkdir()


@pytest.fixture
def files(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Files:
    cli.data.mkdir()
    module = Files("braidlog.storage.inspect")
    module.findings, module.losses, module.asked = [], [], []
    storage = ModuleType("braidlog.storage")
    storage.inspect = module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "braidlog.storage", storage)
    monkeypatch.setitem(sys.modules, "braidlog.storage.inspect", module)
    return module


def test_frames_are_bounded(cli: Cli, files: Files) -> None:
    found = cli.json("inspect", "frames", "7", "--limit", "3", "--log", "a")
    assert [frame["ok"] for frame in found] == [True, True, False]
    assert files.asked == [(7, "a", 0)]
    table = cli.run("inspect", "frames", "7", "--limit", "1").stdout
    assert table.split() == [
        "segment",
        "offset",
        "kind",
        "ok",
        "7",
        "0",
        "batch",
        "yes",
    ]


def test_verify_passes(cli: Cli, files: Files) -> None:
    assert "no damage found" in cli.run("verify").stderr
    assert cli.json("verify")[0]["findings"] == []


def test_verify_fails_with_the_code_for_corruption(cli: Cli, files: Files) -> None:
    files.findings.append(Finding("wal/slot-000001.wal", 4096, "checksum"))
    result = cli.run("verify", code=5)
    assert "slot-000001.wal" in result.stdout
    assert "hint: " in result.stderr
    [report] = cli.json("verify", code=5)
    assert report["findings"][0]["offset"] == 4096


def test_repair_shows_the_loss_and_asks(cli: Cli, files: Files) -> None:
    files.losses.append(Loss("orders", 5, 8, 3))
    result = cli.run("repair", code=2)
    assert "orders" in result.stdout
    assert "3 lost records" in result.stderr
    copy = cli.data.with_name("data-repaired")
    assert not copy.exists()
    cli.run("repair", "--dry-run")
    assert not copy.exists()
    cli.run("repair", "--yes")
    assert copy.is_dir()
    assert "exists" in cli.run("repair", "--yes", code=1).stderr


def test_repair_without_loss_does_not_ask(cli: Cli, files: Files) -> None:
    [result] = cli.json("repair", "-o", str(cli.data.with_name("copy")))
    assert result["losses"] == []
