"""Whom the leader sends what it decided, and in which order."""

from braidlog.metarepo.pushing import Pusher, PusherSettings
from unit.metarepo.bench import Bench


def test_the_primary_hears_of_a_cut_first() -> None:
    bench = Bench()
    bench.create((3, 1, 2))
    (stream,) = bench.repository.state.streams
    for node in (1, 2, 3):
        bench.tell(node, stream, end=2)
    cut = bench.cut()
    assert cut is not None
    sent = Pusher(PusherSettings()).applied(bench.repository, (cut,))
    assert [node for node, _ in sent] == [3, 1, 2]
