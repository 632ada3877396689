from benchmarks import sync_methods
from benchmarks.floor import Sync

BLOCK, MIB = 4096, 1 << 20


def medians(**by_method: tuple[float, float]) -> sync_methods.Medians:
    return {
        (size, method): value
        for method, values in by_method.items()
        for size, value in zip((BLOCK, MIB), values, strict=True)
    }


def test_the_fastest_at_one_block_wins_if_it_is_close_elsewhere() -> None:
    assert sync_methods.decide(medians(a=(80, 315), b=(90, 300))) == "a"


def test_otherwise_the_smallest_worst_case_wins() -> None:
    assert sync_methods.decide(medians(a=(80, 600), b=(90, 300))) == "b"


def test_a_refused_method_is_out() -> None:
    rounds = [[Sync("a", BLOCK, refused="EINVAL"), Sync("b", BLOCK, p50_us=9)]]
    assert sync_methods.refused(rounds) == {"a"}
    assert sync_methods.decide(sync_methods.p50s(rounds)) == "b"
