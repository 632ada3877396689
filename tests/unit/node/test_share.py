"""One connection takes what is free, and leaves something to each of the others."""

from hypothesis import given
from hypothesis import strategies as st

from braidlog.errors import NotReadyError
from braidlog.node.share import share_of_one
from braidlog.node.tables.leases import Leases
from braidlog.node.tables.settings import TableSettings


@given(st.integers(1, 200), st.integers(1, 50), st.integers(1, 30))
def test_a_greedy_connection_leaves_half_to_the_others(
    most: int, of_one: int, connections: int
) -> None:
    taken = 0
    while taken < most and taken < share_of_one(taken, most, of_one, connections):
        taken += 1
    assert 1 <= taken <= max(1, (most + 1) // 2, most // 2 // connections)
    # Who comes next gets at least one place, as long as there is one.
    assert share_of_one(taken, most, of_one, connections) >= 1


class Lease:
    def release(self) -> None:
        """Nothing is held."""


class Table:
    def lease(self, _: int) -> Lease:
        return Lease()


def test_positions_that_are_kept_are_shared_by_connections() -> None:
    settings = TableSettings(leases_max=8, leases_of_one_max=3)
    leases, table = Leases(settings, lambda: 2, lambda _: False), Table()

    def keep(position: int, owner: str) -> bool:
        try:
            holder = owner, position
            leases.keep(table, b"t", position, 1000, 0.0, holder)  # type: ignore[arg-type]
        except NotReadyError:
            return False
        return True

    assert [keep(position, "greedy") for position in range(6)] == [True] * 3 + [
        False
    ] * 3
    assert keep(0, "greedy")  # For longer; that is no other position.
    assert [keep(position, "other") for position in range(10, 14)] == [
        True,
        True,
        False,
        False,
    ]
    assert keep(20, "third")
    assert len(leases) == 6
    leases.tick(2.0)
    assert keep(5, "greedy")
