"""Many questions are one to the group, and few are on their way."""

from __future__ import annotations

from braidlog.errors import LogError, NotReadyError, UnavailableError
from braidlog.shard.questions import OUT_MAX, Question, Questions


def question(name: str, *, index: int = 0, leading: bool = False) -> Question[str]:
    return Question((name,), lambda: [(name, "yes")], index, leading)


class Asked:
    """Takes what a member asks its group."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.error: LogError | None = None
        self.questions: Questions[str] = Questions(self.read)

    def read(self, number: int) -> None:
        if self.error is not None:
            raise self.error
        self.numbers.append(number)

    def due(self, applied: int) -> list[object]:
        due = self.questions.due(applied)
        return [who for each in due for who, _ in each.answer()]


def test_whoever_asks_in_one_turn_is_answered_with_one_question() -> None:
    asked = Asked()
    for number in range(1000):
        asked.questions.add(question(f"{number}"))
    asked.questions.send()
    assert asked.numbers == [1]
    asked.questions.add(question("late"))
    asked.questions.confirmed(1, 7)
    assert asked.due(6) == []
    assert len(asked.due(7)) == 1000
    assert len(asked.questions) == 1, "the late one was not asked before"


def test_few_are_on_their_way_whoever_asks_how_often() -> None:
    asked = Asked()
    for number in range(10_000):
        asked.questions.add(question(f"{number}"))
        assert asked.questions.send() == ([], None)
    assert len(asked.numbers) == OUT_MAX
    assert len(asked.questions) == 10_000
    asked.questions.confirmed(1, 0)
    asked.questions.send()
    assert len(asked.numbers) == OUT_MAX + 1
    asked.questions.confirmed(OUT_MAX + 1, 0)
    # The one that made room took all that waited.
    assert len(asked.due(0)) == 10_000 - OUT_MAX + 1


def test_each_is_refused_once() -> None:
    asked = Asked()
    asked.questions.add(question("one"))
    asked.questions.send()
    asked.questions.add(question("two", leading=True))
    assert [each.requests for each in asked.questions.failed(1)] == [("one",)]
    assert asked.questions.failed(1) == []
    assert [each.requests for each in asked.questions.drop_leading()] == [("two",)]
    assert asked.questions.drop_leading() == []
    asked.questions.add(question("three"))
    asked.error = NotReadyError("no")
    refused, error = asked.questions.send()
    assert isinstance(error, UnavailableError)
    assert [each.requests for each in refused] == [("three",)]
    assert len(asked.questions) == 0


def test_what_a_leader_decided_goes_with_its_lead_wherever_it_is() -> None:
    asked = Asked()
    for name in ("confirmed", "out", "asked"):
        asked.questions.add(question(name, leading=True))
        asked.questions.add(question(f"{name} too", index=5))
        if name != "asked":
            asked.questions.send()
    asked.questions.confirmed(1, 0)
    assert len(asked.questions.drop_leading()) == 3
    asked.questions.send()
    asked.questions.confirmed(2, 0)
    asked.questions.confirmed(3, 0)
    assert asked.due(4) == []
    assert asked.due(5) == ["confirmed too", "out too", "asked too"]
    asked.questions.add(question("last"))
    assert asked.questions.clear() == ["last"]
