"""Each checker accepts what is right and finds each planted violation."""

from collections.abc import Callable
from random import Random

import pytest
from sim.checkers import (
    ANYTHING,
    AppendChecker,
    ClaimChecker,
    CutChecker,
    CutRun,
    EpochChecker,
    IndexedChecker,
    Operation,
    check_register,
)
from sim.checkers.appends import Seen
from sim.errors import MisuseError, ViolationError


def log() -> AppendChecker:
    """Return a history: 1 and 3 in stream 1, 2 in stream 2, one failed, one open."""
    checker = AppendChecker()
    for number, payload in enumerate((b"a", b"b", b"c", b"failed", b"open"), 1):
        checker.invoked(payload, producer=7, sequence=number)
    checker.acked(b"a", 1, stream=1, llsn=1)
    checker.acked(b"b", 2, stream=2, llsn=1)
    checker.acked(b"c", 3, stream=1, llsn=2)
    checker.failed(b"failed")
    return checker


WHOLE = [Seen(1, b"a", 1, 1), Seen(2, b"b", 2, 1), Seen(3, b"c", 1, 2)]
OPEN = Seen(4, b"open", 2, 2)


def test_a_right_history_is_accepted() -> None:
    checker = log()
    checker.acked(b"a", 1, stream=1, llsn=1)
    checker.read("r", Seen(2, b"b"))
    checker.subscribed("s", 1)
    for seen in [*WHOLE, OPEN]:
        checker.delivered("s", seen)
    checker.finish([*WHOLE, OPEN], 1, 4)
    assert checker.counts() == {
        "unknown": 1,
        "acknowledged": 3,
        "failed": 1,
        "positions": 4,
    }


def test_trims_are_accepted() -> None:
    checker = log()
    checker.subscribed("s", 1)
    checker.delivered("s", WHOLE[0])
    checker.trim_asked(2)
    checker.trimmed(2)
    checker.refused("r", 1)
    checker.skipped("s", 3)
    checker.delivered("s", WHOLE[2])
    checker.finish(WHOLE[2:], 3, 3)


def trimmed(to: int, asked: int | None = None) -> AppendChecker:
    checker = log()
    checker.trim_asked(to if asked is None else asked)
    checker.trimmed(to)
    return checker


def subscribed(begin: int) -> AppendChecker:
    checker = log()
    checker.subscribed("s", begin)
    return checker


def floor() -> None:
    checker = log()
    checker.acked(b"open", 9)
    checker.invoked(b"later")
    checker.acked(b"later", 5)


def swapped(first: Seen, second: Seen) -> None:
    checker = AppendChecker()
    for payload in (first.payload, second.payload):
        checker.invoked(payload)
    checker.read("r", first)
    checker.read("r", second)


def repeated() -> None:
    checker = subscribed(1)
    checker.delivered("s", WHOLE[0])
    checker.delivered("s", WHOLE[0])


def skipped_beyond_the_trim() -> None:
    checker = subscribed(1)
    checker.trim_asked(1)
    checker.skipped("s", 3)


APPENDS: dict[str, Callable[[], object]] = {
    "acknowledged record lost": lambda: log().finish(WHOLE[:2], 1, 2),
    "acknowledged record changed": lambda: log().read("r", Seen(2, b"open")),
    "other record in the log": lambda: log().finish([*WHOLE[:2], OPEN], 1, 3),
    "two positions": lambda: log().read("r", Seen(4, b"a")),
    "two positions acknowledged": lambda: log().acked(b"a", 4),
    "twice in the log": lambda: log().finish([*WHOLE, Seen(4, b"a", 1, 3)], 1, 4),
    "failed and read": lambda: log().read("r", Seen(4, b"failed")),
    "failed and acknowledged": lambda: log().acked(b"failed", 4),
    "acknowledged and failed": lambda: log().failed(b"a"),
    "never appended": lambda: log().read("r", Seen(4, b"strange")),
    "position 0": lambda: log().acked(b"open", 0),
    "time turned": floor,
    "gap in the log": lambda: log().finish([Seen(1, b"a"), *[Seen(3, b"c")] * 2], 1, 3),
    "log begins late": lambda: log().finish(WHOLE[1:], 2, 3),
    "log ends early": lambda: log().finish(WHOLE, 1, 4),
    "gap in a subscription": lambda: subscribed(1).delivered("s", WHOLE[1]),
    "repeat in a subscription": repeated,
    "subscription begins elsewhere": lambda: subscribed(2).delivered("s", WHOLE[0]),
    "order of a stream": lambda: swapped(Seen(1, b"x", 1, 2), Seen(2, b"y", 1, 1)),
    "no room in a stream": lambda: swapped(Seen(5, b"x", 1, 1), Seen(6, b"y", 1, 3)),
    "one LLSN twice": lambda: swapped(Seen(2, b"x", 1, 1), Seen(1, b"y", 1, 1)),
    "LLSN 0": lambda: log().read("r", Seen(4, b"open", 3, 0)),
    "other LLSN": lambda: log().read("r", Seen(3, b"c", 1, 3)),
    "other stream": lambda: log().read("r", Seen(3, b"c", 2, 2)),
    "gap in a stream": lambda: log().finish([*WHOLE, Seen(4, b"open", 2, 3)], 1, 4),
    "read below a trim": lambda: trimmed(2).read("r", WHOLE[1]),
    "trim undone": lambda: trimmed(2).finish(WHOLE[1:], 2, 3),
    "trimmed too much": lambda: trimmed(1).finish(WHOLE[2:], 3, 3),
    "refused above a trim": lambda: trimmed(2).refused("r", 3),
    "skipped above a trim": skipped_beyond_the_trim,
}


@pytest.mark.parametrize("violation", APPENDS)
def test_a_violation_of_appends_is_found(violation: str) -> None:
    with pytest.raises(ViolationError):
        APPENDS[violation]()


def test_wrong_use_is_no_violation() -> None:
    checker = log()
    with pytest.raises(MisuseError):
        checker.invoked(b"a")
    with pytest.raises(MisuseError):
        checker.invoked(b"new", producer=7, sequence=1)
    with pytest.raises(MisuseError):
        checker.acked(b"strange", 9)
    with pytest.raises(MisuseError):
        checker.trimmed(1)


CUTS = [
    (1, 3, (CutRun(1, 1, 1, 2), CutRun(2, 1, 3, 1))),
    (2, 4, (CutRun(2, 2, 4, 1),)),
    (3, 9, (CutRun(1, 3, 5, 5),)),
]


def test_right_cuts_are_accepted_in_any_order() -> None:
    checker = CutChecker()
    for number in (2, 0, 1, 1, 2):
        checker.seen("n", *CUTS[number])
    for version in (1, 2, 3):
        checker.applied("n", version)
    checker.restarted("m", 2)
    checker.applied("m", 3)
    assert checker.finish() == 3


WRONG_CUTS: dict[str, list[tuple[int, int, tuple[CutRun, ...]]]] = {
    "differs": [CUTS[0], (1, 2, (CutRun(1, 1, 1, 2),))],
    "version is missing": [CUTS[0], CUTS[2]],
    "empty": [(1, 0, ())],
    "run of nothing": [(1, 1, (CutRun(1, 1, 1, 1), CutRun(2, 1, 2, 0)))],
    "sum": [(1, 3, (CutRun(1, 1, 1, 2),))],
    "hole": [(1, 3, (CutRun(1, 1, 1, 2), CutRun(2, 1, 4, 1)))],
    "overlap": [CUTS[0], (2, 4, (CutRun(2, 2, 3, 2),))],
    "LLSNs repeat": [CUTS[0], (2, 4, (CutRun(1, 2, 4, 1),))],
    "LLSNs are left out": [CUTS[0], (2, 4, (CutRun(1, 4, 4, 1),))],
}


@pytest.mark.parametrize("violation", WRONG_CUTS)
def test_a_violation_of_cuts_is_found(violation: str) -> None:
    checker = CutChecker()
    with pytest.raises(ViolationError):  # noqa: PT012
        for cut in WRONG_CUTS[violation]:
            checker.seen("n", *cut)
        checker.finish()


@pytest.mark.parametrize("versions", [(1, 1), (1, 3), (2, 1), (4,)])
def test_cuts_are_applied_one_after_the_other(versions: tuple[int, ...]) -> None:
    checker = CutChecker()
    for cut in CUTS:
        checker.seen("n", *cut)
    with pytest.raises(ViolationError):  # noqa: PT012
        for version in versions:
            checker.applied("n", version)


def test_epochs() -> None:
    checker = EpochChecker()
    checker.decided(1, 1, (1, 2, 3), 1)
    checker.decided(1, 1, (1, 2, 3), 1)
    checker.decided(1, 2, (2, 3), 10)
    checker.entered("n", 1, 1)
    checker.entered("n", 1, 2)
    checker.entered("n", 2, 1)
    with pytest.raises(ViolationError, match="falls back"):
        checker.entered("n", 1, 1)
    with pytest.raises(ViolationError, match="epoch 2"):
        checker.decided(1, 2, (1, 3), 10)
    with pytest.raises(ViolationError, match="starts at"):
        checker.decided(1, 3, (1, 3), 9)


def test_indexed_reads() -> None:
    checker = IndexedChecker()
    early = checker.floor()
    checker.ended("w", checker.floor(), 5, "five")
    checker.ended("slow reader", early, 3, "three")
    checker.ended("r", checker.floor(), 5, "five")
    with pytest.raises(ViolationError, match="began when 5"):
        checker.ended("r", checker.floor(), 4)
    with pytest.raises(ViolationError, match="at 5"):
        checker.ended("r", checker.floor(), 5, "other")


def write(value: str, begin: float, end: float = float("inf")) -> Operation:
    return Operation("w", True, value, begin, end)


def read(value: str | None, begin: float, end: float) -> Operation:
    return Operation("r", False, value, begin, end)


def swap(
    found: str | None, value: str, begin: float, end: float = float("inf")
) -> Operation:
    return Operation("s", True, value, begin, end, found)


LINEAR = {
    "empty": [],
    "initial": [read(None, 0, 1)],
    "overlapping write not yet": [write("a", 0, 10), read(None, 1, 2), read("a", 3, 4)],
    "unknown write read later": [write("a", 0), read(None, 5, 6), read("a", 7, 8)],
    "unknown write never read": [write("a", 0), read(None, 5, 6), read(None, 7, 8)],
    "concurrent writes": [
        write("a", 0, 5),
        write("b", 1, 4),
        read("b", 6, 7),
        read("b", 8, 9),
    ],
    "same instant": [write("a", 0, 1), read("a", 1, 1), read("a", 1, 2)],
    "swaps in turn": [swap("a", "b", 0, 9), swap(None, "a", 0, 9), read("b", 10, 11)],
    "unknown swap never done": [write("a", 0, 1), swap("x", "b", 2), read("a", 3, 4)],
}
NOT_LINEAR = {
    "stale": [write("a", 0, 1), read(None, 2, 3)],
    "never written": [read("x", 0, 1)],
    "back in time": [write("a", 0), read("a", 1, 2), read(None, 3, 4)],
    "from the future": [read("a", 0, 1), write("a", 2, 3)],
    "two orders": [
        write("a", 0, 9),
        write("b", 0, 9),
        read("a", 10, 11),
        read("b", 12, 13),
    ],
    "lost": [write("a", 0, 1), write("b", 2, 3), read("a", 4, 5)],
    "swapped twice": [swap(None, "a", 0, 9), swap(None, "b", 0, 9)],
    "unknown swap of another": [write("a", 0, 1), swap("x", "b", 2), read("b", 3, 4)],
}


@pytest.mark.parametrize("history", LINEAR)
def test_a_register_is_accepted(history: str) -> None:
    check_register(LINEAR[history])


@pytest.mark.parametrize("history", NOT_LINEAR)
def test_a_violation_of_a_register_is_found(history: str) -> None:
    with pytest.raises(ViolationError):
        check_register(NOT_LINEAR[history])


def test_a_search_that_is_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.checkers.register._STATES_MAX", 5)
    with pytest.raises(MisuseError, match="too many"):
        check_register([write(str(n), 0) for n in range(9)] + [read("x", 1, 2)])


def by_trying_all(operations: list[Operation], value: object = None) -> bool:
    """Decide the same by trying every order: the dumb model."""
    if all(op.write and op.end == float("inf") for op in operations):
        return True
    for op in operations:
        rest = [other for other in operations if other is not op]
        if any(other.end < op.begin for other in rest):
            continue
        fits = op.found in (ANYTHING, value)
        if op.write and fits and by_trying_all(rest, op.value):
            return True
        if not op.write and op.value == value and by_trying_all(rest, value):
            return True
    return False


def test_the_search_agrees_with_trying_all_orders() -> None:
    verdicts = []
    for seed in range(600):
        random = Random(seed)
        history = []
        for number in range(6):
            begin = random.randrange(12)
            end = begin + 1 + random.randrange(6)
            if random.random() < 0.5:
                unknown = random.random() < 0.3
                until = float("inf") if unknown else end
                found = random.choice([*[ANYTHING] * 9, None, *"012345"[:number]])
                history.append(Operation("w", True, str(number), begin, until, found))
            else:
                value = random.choice([None, *"012345"[: number + 1]])
                history.append(read(value, begin, end))
        expected = by_trying_all(history)
        try:
            check_register(history)
        except ViolationError:
            found = False
        else:
            found = True
        assert found == expected, history
        verdicts.append(found)
    assert 30 < sum(verdicts) < 570


def test_what_was_reported_is_found_again() -> None:
    checker = ClaimChecker()
    checker.found("n1", 1, 0, 1)
    checker.claimed("n1", 1, epoch=2, end=10)
    checker.claimed("n1", 1, epoch=2, end=7)  # a late one, of what was before
    checker.found("n1", 1, 2, 10)
    checker.found("n1", 1, 3, 5)
    for epoch, end in ((2, 9), (1, 20)):
        with pytest.raises(ViolationError, match=r"reported were 10 in 2"):
            checker.found("n1", 1, epoch, end)
    checker.cut("n1", 1, 6)
    checker.found("n1", 1, 2, 6)
    checker.dropped("n1", 1)
    checker.found("n1", 1, 0, 1)
