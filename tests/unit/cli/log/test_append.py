import io

import pytest

import braidlog
from braidlog.cli.command.failures import Problem
from braidlog.cli.log.append import groups
from unit.cli.conftest import Cli


@pytest.fixture
def log(cli: Cli) -> Cli:
    cli.run("log", "create", "log")
    return cli


def test_values_from_the_command_line(log: Cli) -> None:
    assert log.json("append", "log", "a", "b", "--key", "k") == [
        {"log": "log", "first": 1, "end": 3, "records": 2}
    ]
    assert [r["key"] for r in log.json("read", "log")] == ["k", "k"]


def test_lines_of_stdin(log: Cli) -> None:
    assert "appended 3: 1 to 3" in log.run("append", "log", stdin="a\n\nc").stdout
    assert log.values("log") == ["a", "", "c"]


def test_other_delimiters(log: Cli) -> None:
    log.run("append", "log", "--delimiter", r"\0", stdin=b"a\nb\0c")
    assert [r["value"] for r in log.json("read", "log")] == ["a\nb", "c"]


def test_keys_from_the_input(log: Cli) -> None:
    log.run("append", "log", "--key-separator", "=", stdin="a=1\nb=2=3\n")
    shown = [(r["key"], r["value"]) for r in log.json("read", "log")]
    assert shown == [("a", "1"), ("b", "2=3")]


def test_input_without_the_key_separator_is_named(log: Cli) -> None:
    result = log.run("append", "log", "--key-separator", "=", stdin="a=1\nb\n", code=2)
    assert "error: input 2 does not contain the key separator '='" in result.stderr


def test_nothing_to_append(log: Cli) -> None:
    assert log.json("append", "log")[0]["records"] == 0


def test_create(cli: Cli) -> None:
    cli.run("append", "new", "a", code=3)
    cli.run("append", "new", "a", "--create")
    assert cli.values("new") == ["a"]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_groups_do_not_depend_on_how_the_stream_is_cut(size: int) -> None:
    class Slow(io.BytesIO):
        def read1(self, _limit: int | None = -1, /) -> bytes:
            return self.read(size)

    text = b"one--two-three----four--"
    found = [item for group in groups(Slow(text), b"--") for item in group]
    assert found == [b"one", b"two-three", b"", b"four"]


def test_a_value_that_no_record_holds_is_not_read_to_its_end(log: Cli) -> None:
    class Endless(io.BytesIO):
        def read1(self, _size: int | None = -1, /) -> bytes:
            assert self.tell() < 32 << 20, "it reads on"
            self.seek(self.tell() + 65536)
            return bytes(65536)

    with pytest.raises(Problem, match="more than 16777216 bytes"):
        list(groups(Endless(), b"\n"))
    stdin = b"one\n" + bytes((16 << 20) + 1)
    result = log.run("append", "log", stdin=stdin, code=1)
    assert result.stdout == "appended 1: 1 to 1\n"
    assert "a value on stdin has more than" in result.stderr
    assert log.values("log") == ["one"]


def test_an_interrupt_counts_what_was_on_its_way(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.run("append", "log", "one", "--create")

    def interrupted(log: braidlog.Log, values: list[bytes]) -> None:
        log.submit_many(values)
        raise KeyboardInterrupt

    monkeypatch.setattr(braidlog.Log, "append_many", interrupted)
    result = cli.run("append", "log", stdin="two\nthree\n", code=130)
    assert result.stdout == "appended 2: 2 to 3\n"
    monkeypatch.undo()
    assert cli.values("log") == ["one", "two", "three"]
