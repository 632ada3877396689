"""What is fetched for the peers is compared with its checksums."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from benchmarks.cluster.peers.fetch import RefusedError, compare, sums


def test_sums_are_read_as_sha256sum_writes_them() -> None:
    assert sums("aa  one.jar\nbb  two.jar\n") == {"one.jar": "aa", "two.jar": "bb"}


def test_what_is_fetched_is_compared(tmp_path: Path) -> None:
    (tmp_path / "one.jar").write_bytes(b"one")
    (tmp_path / "two.jar").write_bytes(b"two")
    right = {
        f"{name}.jar": hashlib.sha256(name.encode()).hexdigest()
        for name in ("one", "two")
    }
    compare(tmp_path, right)
    with pytest.raises(RefusedError, match=r"say: one\.jar$"):
        compare(tmp_path, right | {"one.jar": "0"})
    with pytest.raises(RefusedError, match=r"say: three\.jar$"):
        compare(tmp_path, right | {"three.jar": "0"})
    del right["two.jar"]
    with pytest.raises(RefusedError, match=r"say: two\.jar$"):
        compare(tmp_path, right)
