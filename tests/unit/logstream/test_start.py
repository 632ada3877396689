"""A first look: a group opens, appends, commits."""

from braidlog.logstream import ReplicaState
from braidlog.wire.messages import Appended
from unit.logstream.group import Group
from unit.logstream.memory import batch


def test_an_append_is_answered_when_it_is_cut() -> None:
    group = Group((1, 2, 3))
    group.open()
    assert group.repository.open
    group.append(1, ("a", 0, batch("x", 2)), ("b", 1, batch("y")))
    group.settle()
    assert group.answers == []
    group.run(other=5)
    assert group.answers == [("a", Appended(1, 6, 2, 1)), ("b", Appended(3, 8, 1, 1))]
    logs = [group.log(node) for node in (1, 2, 3)]
    assert logs == [[(1, 7, "x"), (3, 8, "y")]] * 3
    assert group.replicas[2].state is ReplicaState.RUNNING
