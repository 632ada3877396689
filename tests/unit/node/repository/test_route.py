"""When news of the metadata are looked at."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from braidlog.errors import UnavailableError
from braidlog.node.node import ClusterNode
from braidlog.node.repository.route import RepositoryRoute


def test_news_are_looked_at_again_if_somebody_could_not() -> None:
    """A full disk keeps who notes what it is bound to from its work, once."""
    directory: Any = SimpleNamespace(metadata=SimpleNamespace(index=7), voters=())
    route = RepositoryRoute(1, cast("Any", None), directory)
    looked: list[str] = []

    def identity(_era: int) -> None:
        looked.append("identity")
        if looked == ["identity"]:
            raise UnavailableError("no space left on device")

    node: Any = SimpleNamespace(
        _route=route,
        _era=1,
        _reporting=SimpleNamespace(again=lambda: None),
        peer_identity=SimpleNamespace(look=identity),
        requests=SimpleNamespace(
            answers=SimpleNamespace(look=lambda: looked.append("polls"))
        ),
        tables=SimpleNamespace(look=lambda: looked.append("tables")),
        _look_at_shards=lambda: looked.append("shards"),
    )
    assert route.revision != route.seen
    with pytest.raises(UnavailableError):
        ClusterNode._look_at_news(node)
    assert route.revision != route.seen
    ClusterNode._look_at_news(node)
    assert looked == ["identity", "identity", "polls", "tables", "shards"]
    assert route.revision == route.seen
    directory.metadata = SimpleNamespace(index=8)
    assert route.revision != route.seen
