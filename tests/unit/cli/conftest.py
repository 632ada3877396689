"""The command line over a data directory of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from braidlog.cli import main
from braidlog.client import AsyncClient, Client
from unit.client.fake import FakeCluster


@dataclass(frozen=True)
class Cli:
    """Runs commands on one data directory."""

    data: Path

    def run(self, *arguments: str, stdin: str | bytes = "", code: int = 0) -> Result:
        """Run a command; fail unless it ends with `code`."""
        result = CliRunner().invoke(
            main,
            [*arguments, "--data", str(self.data)],
            input=stdin,
            catch_exceptions=False,
        )
        assert result.exit_code == code, result.output
        return result

    def json(self, *arguments: str, stdin: str | bytes = "", code: int = 0) -> Any:
        """Run a command with --json; return its values, which must be all of stdout."""
        result = self.run(*arguments, "--json", stdin=stdin, code=code)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def mistake(self, *arguments: str) -> Result:
        """Run a command, however it ends."""
        data = ["--data", str(self.data)]
        return CliRunner().invoke(main, [*arguments, *data], catch_exceptions=False)

    def values(self, log: str) -> list[str]:
        """Return the values of a log as text."""
        return self.run("read", log, "--format", "raw").stdout.splitlines()


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "data")


@pytest.fixture
def orders(cli: Cli) -> Cli:
    """Have a log `orders` with ten records, keyed a and b in turn."""
    cli.run("log", "create", "orders")
    lines = "".join(f"{'ab'[i % 2]}=v{i}\n" for i in range(1, 11))
    cli.run("append", "orders", "--key-separator", "=", stdin=lines)
    return cli


@dataclass(frozen=True)
class ClusterCli:
    """Runs commands on a cluster in memory."""

    fake: FakeCluster

    def run(self, *arguments: str, stdin: str | bytes = "", code: int = 0) -> Result:
        """Run a command; fail unless it ends with `code`."""
        result = CliRunner().invoke(
            main,
            [*arguments, "--cluster", "n1,n2"],
            input=stdin,
            catch_exceptions=False,
        )
        assert result.exit_code == code, result.output
        return result

    def json(self, *arguments: str, stdin: str | bytes = "", code: int = 0) -> Any:
        """Run a command with --json; return its values, which must be all of stdout."""
        result = self.run(*arguments, "--json", stdin=stdin, code=code)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def mistake(self, *arguments: str) -> Result:
        """Run a command, however it ends."""
        nodes = ["--cluster", "n1,n2"]
        return CliRunner().invoke(main, [*arguments, *nodes], catch_exceptions=False)


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> ClusterCli:
    """Have a cluster of three nodes."""
    fake = FakeCluster()

    def client() -> AsyncClient:
        fake.go_to_loop()
        return fake.client(timeout_s=2)

    def connect(*_: object, **__: object) -> Client:
        return Client(client)

    monkeypatch.setattr("braidlog.client.connect", connect)
    monkeypatch.setattr("braidlog.cli.command.target.probe", lambda *_: None)
    return ClusterCli(fake)
