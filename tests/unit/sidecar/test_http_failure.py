"""What a model server's refusals mean to a caller."""

import pytest

from modelservice_sidecar.backends.http_failure import asked_to_wait

DATE = "Tue, 01 Dec 2026 10:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "1234567"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Tue, 01 Dec 2026 10:00:30 GMT", "date": DATE}, 30),
        ({"retry-after": "Tue, 01 Dec 2026 09:00:00 GMT", "date": DATE}, 0),
        ({"retry-after": "Tue, 01 Dec 2026 10:00:30 GMT"}, None),
        ({"retry-after": "Tue, 01 Dec 2026 10:00:30", "date": DATE}, None),
        ({"retry-after": "Tue, 01 Dec 9999 10:00:30 GMT", "date": DATE}, None),
        ({}, None),
    ],
    ids=str,
)
def test_retry_after_is_read_as_seconds_or_as_a_moment_beside_the_answer_s_date(
    headers: dict[str, str], seconds: int | None
) -> None:
    assert asked_to_wait(headers) == seconds
