"""How long a stopping adapter serves."""

import pytest

from modelservice_sidecar.core.draining import QUIET, end_of_drain


@pytest.mark.promise("nothing-lost")
@pytest.mark.parametrize(
    ("last_request", "least", "most", "end"),
    [
        pytest.param(0.0, 5.0, 20.0, 105.0, id="no request comes: the least"),
        pytest.param(101.0, 5.0, 20.0, 105.0, id="the last request is long past by then: the least"),
        pytest.param(104.0, 5.0, 20.0, 104.0 + QUIET, id="a late request: until it has been quiet"),
        pytest.param(112.0, 5.0, 20.0, 112.0 + QUIET, id="requests go on: so does serving"),
        pytest.param(119.5, 5.0, 20.0, 120.0, id="requests never end: the most"),
        pytest.param(0.0, 0.0, 0.0, 100.0, id="a pod without a grace period"),
    ],
)
def test_serving_ends_when_no_request_comes_any_more(
    last_request: float, least: float, most: float, end: float
) -> None:
    assert end_of_drain(began=100.0, last_request=last_request, least=least, most=most) == end
