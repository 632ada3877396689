"""Any history of appends, flushes, merges and reopens: a table is a dict."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import braidlog
from braidlog.store.tables.table import Table

KEYS = st.sampled_from([b"", b"a", b"ab", b"b", b"\xff", b"\xff\xff"])
STEP = st.one_of(
    st.tuples(st.just("put"), KEYS, st.sampled_from(["x", "y", "z"])),
    st.tuples(st.just("put"), KEYS, st.sampled_from(["x", "y", "z"])),
    st.tuples(st.just("delete"), KEYS, st.just("")),
    st.tuples(st.just("flush"), st.just(b""), st.just("")),
    st.tuples(st.just("maintain"), st.just(b""), st.just("")),
    st.tuples(st.just("reopen"), st.just(b""), st.just("")),
    st.tuples(st.just("truncate"), st.just(b""), st.just("")),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEP, max_size=30))
def test_a_table_is_a_dict(steps: list[tuple[str, bytes, str]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        where = Path(scratch, "d")
        store = braidlog.open(where)
        store.create_log("log")
        store.create_table(
            "table", log="log", deletes="empty", indexes={"by": "value:text"}
        )
        expected: dict[bytes, tuple[int, str]] = {}
        for kind, key, value in steps:
            log = store.log("log")
            match kind:
                case "put":
                    position = log.append(value.encode(), key=key)
                    expected[key] = (position, value)
                case "delete":
                    log.append(b"", key=key)
                    expected.pop(key, None)
                case "flush":
                    store.table("table").flush()
                case "maintain":
                    store._table_host().maintain()
                case "truncate":
                    with store.ddl() as change:
                        change.truncate("table")
                    expected = {}
                case _:
                    store.close()
                    store = braidlog.open(where)
            check(store.table("table"), expected)
        assert store.table("table").verify() == (len(expected), len(expected))
        store.close()


def check(table: Table, expected: dict[bytes, tuple[int, str]]) -> None:
    found = [(each.key, (each.position, each.value.decode())) for each in table]
    assert found == sorted(expected.items())
    by = [(each.value.decode(), each.key) for each in table.index("by")]
    assert by == sorted((value, key) for key, (_, value) in expected.items())
    back = [each.key for each in table.scan(reverse=True)]
    assert back == sorted(expected, reverse=True)
