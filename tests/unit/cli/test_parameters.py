import click
import pytest

from braidlog.cli.command import parameters
from braidlog.cli.terminal.records import escape
from braidlog.cli.terminal.text import clock, human_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("1000", 1000), ("64KiB", 65536), ("2 mb", 2 << 20), ("10G", 10 << 30)],
)
def test_sizes(text: str, expected: int) -> None:
    assert parameters.size(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("5ms", 5), ("30s", 30_000), ("2h", 7_200_000)]
)
def test_durations(text: str, expected: int) -> None:
    assert parameters.duration(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-02", 86_400_000_000),
        ("1970-01-01T00:00:01.000002Z", 1_000_002),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999999", -1),
        ("1700000000000000", 1_700_000_000_000_000),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parameters.timestamp(text) == expected


@pytest.mark.parametrize(
    ("convert", "text"),
    [
        (parameters.size, "-1"),
        (parameters.size, "1.5G"),
        (parameters.duration, "7"),
        (parameters.timestamp, "yesterday"),
        (parameters.delimiter, ""),
    ],
)
def test_refusals(convert: object, text: str) -> None:
    assert callable(convert)
    with pytest.raises(click.BadParameter):
        convert(text)


def test_clock_shows_microseconds_and_survives_any_number() -> None:
    assert clock(0) == "1970-01-01T00:00:00.000000Z"
    assert clock(-1) == "1969-12-31T23:59:59.999999Z"
    assert clock(1 << 62) == f"{1 << 62}us"


def test_human_bytes() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1536, 5 << 30, 1 << 50)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
        "1024.0 TiB",
    ]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        ("naïve ✓".encode(), "naïve ✓"),
        (b"\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\u202egnp.exe".encode(), r"\u202egnp.exe"),
        (b"ok\xff\n", r"ok\xff\n"),
    ],
)
def test_escape_never_steers_a_terminal(data: bytes, shown: str) -> None:
    assert escape(data) == shown
