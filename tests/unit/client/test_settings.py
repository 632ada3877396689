"""What settings of a client refuse."""

import pytest

from braidlog.client.settings import ClientSettings
from braidlog.errors import InvalidArgumentError


def test_no_more_is_in_flight_than_a_node_remembers() -> None:
    assert ClientSettings(in_flight_max=7).in_flight_max == 7
    with pytest.raises(InvalidArgumentError, match="at most 7"):
        ClientSettings(in_flight_max=8)
