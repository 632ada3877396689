"""What retention lets go of when a log has many streams."""

from __future__ import annotations

import pytest

from braidlog.metarepo.machine.retention import SIZES_MAX
from braidlog.wire import commands
from braidlog.wire.results import Result, Trimmed
from unit.metarepo.bench import LOG, Bench, one_cut

OPTIONS = b'{"retention_ms": 1}'


@pytest.fixture
def bench() -> Bench:
    """Two streams; stream 1 has GLSNs 1 to 10, stream 2 those from 11 to 20."""
    bench = Bench()
    bench.create((1,), (1,))
    bench.do(commands.AlterLog(LOG, options=OPTIONS))
    bench.do(one_cut(1, (1, 1, 1, 10), (2, 1, 11, 10)))
    return bench


def said(
    bench: Bench, stream: int, keep: int, *sizes: tuple[int, int], **options: int
) -> Result:
    return bench.do(
        commands.Retain(
            stream,
            OPTIONS,
            keep,
            options.get("bytes_max", 0),
            sizes,
            options.get("now", 0),
        )
    )


def test_what_is_old_in_all_streams_goes(bench: Bench) -> None:
    assert said(bench, 1, 8) == Trimmed(1), "the other stream has not spoken"
    assert said(bench, 2, 13) == Trimmed(8)
    assert said(bench, 1, 21) == Trimmed(13)
    assert said(bench, 1, 5) == Trimmed(13), "a late word changes nothing"
    assert said(bench, 2, 99) == Trimmed(21), "never beyond the end"
    assert bench.repository.config(1).trim == 21


def test_a_removed_stream_that_is_old_as_a_whole_holds_nothing() -> None:
    bench = Bench()
    bench.create((1,))
    bench.do(commands.AlterLog(LOG, options=OPTIONS))
    bench.do(commands.SetStreams(LOG, 2))
    bench.do(one_cut(1, (2, 1, 1, 10)))
    bench.do(commands.SetStreams(LOG, 1))
    epoch = bench.repository.state.streams[1].epoch
    bench.do(one_cut(2, (1, 1, 11, 10), epoch=epoch))
    assert said(bench, 2, 11) == Trimmed(1), "all of it is old"
    assert said(bench, 1, 15) == Trimmed(15)
    assert list(bench.repository.state.streams) == [1], "it went with its last record"


def test_so_many_bytes_are_kept(bench: Bench) -> None:
    def look(bytes_max: int) -> Result:
        said(bench, 1, 0, (1, 100), (6, 50), bytes_max=bytes_max)
        return said(bench, 2, 0, (11, 100), (16, 50), bytes_max=bytes_max)

    assert look(1000) == Trimmed(1)
    assert look(150) == Trimmed(6), "50 of stream 1 and 100 of stream 2"
    assert look(60) == Trimmed(11)
    assert look(1) == Trimmed(16)


def test_the_later_of_both_counts(bench: Bench) -> None:
    said(bench, 1, 4, (1, 100), (6, 50), bytes_max=150)
    assert said(bench, 2, 4, (11, 100), bytes_max=150) == Trimmed(6)
    said(bench, 1, 9, (6, 50), bytes_max=150)
    assert said(bench, 2, 9, (11, 100), bytes_max=150) == Trimmed(9)


def test_pins_hold(bench: Bench) -> None:
    bench.do(commands.SetCursor(LOG, "a", 4, pin=True, lease=100, now=1000))
    said(bench, 1, 9, now=1050)
    assert said(bench, 2, 9, now=1050) == Trimmed(4)
    assert said(bench, 2, 9, now=1100) == Trimmed(9)


def test_other_options_make_it_void(bench: Bench) -> None:
    said(bench, 1, 9)
    bench.do(commands.AlterLog(LOG, options=b"{}"))
    assert said(bench, 2, 9) == Trimmed(1)
    bench.do(commands.AlterLog(LOG, options=OPTIONS))
    assert said(bench, 2, 9) == Trimmed(1), "what stream 1 said is forgotten"


def test_what_makes_no_sense_is_refused(bench: Bench) -> None:
    many = tuple((n, 1) for n in range(SIZES_MAX + 1))
    for keep, sizes in ((0, many), (0, ((5, 1), (5, 1))), (-1, ())):
        bench.refused(commands.Retain(1, OPTIONS, keep, sizes=sizes))
    bench.refused(commands.Retain(9, OPTIONS, 1))
