"""Who waits for metadata: one poll of each connection, however many there are."""

from braidlog.node.requests.polls import SLICE_S, Polls


def test_a_newer_poll_takes_the_place_of_the_older() -> None:
    polls: Polls[int] = Polls()
    assert polls.wait("a", 1, 5, 10.0) is None
    assert polls.wait("b", 2, 5, 10.0) is None
    assert polls.wait("a", 3, 5, 20.0) == 1
    assert len(polls) == 2
    assert polls.news(6) == [2, 3] or polls.news(6) == [3, 2]


def test_who_goes_leaves_nothing_behind() -> None:
    polls: Polls[int] = Polls()
    for number in range(1000):
        polls.wait("a", number, 1, 10.0 + number)
    assert polls.gone("a") == 999
    assert polls.gone("a") is None
    assert not polls._slices
    assert not polls._polls


def test_each_is_due_once_and_not_before_its_time() -> None:
    polls: Polls[int] = Polls()
    for number in range(1, 9):
        polls.wait(number, number, 1, float(number))
    assert polls.due(0.9) == []
    found = []
    for tick in range(200):
        now = tick * 0.05
        due = polls.due(now)
        assert all(number <= now <= number + 2 * SLICE_S for number in due)
        found += due
    assert found == list(range(1, 9))
    polls.wait("late", 9, 1, 0.0)
    assert polls.due(10.0 + SLICE_S) == [9]


def test_news_are_for_those_that_know_less() -> None:
    polls: Polls[int] = Polls()
    for number in range(10_000):
        polls.wait(number, number, number % 10, 60.0)
    assert len(polls.news(5)) == 5000
    assert polls.news(5) == []
    assert len(polls) == 5000
    assert len(polls.due(61.0)) == 5000
    assert not polls._slices
