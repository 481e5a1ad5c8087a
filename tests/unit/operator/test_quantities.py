"""Two spellings of one amount are equal, two amounts are not."""

from decimal import Decimal

import pytest

from modelservice_operator.core import quantities


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1", Decimal(1)),
        ("0.5", Decimal("0.5")),
        ("500m", Decimal("0.5")),
        ("1k", Decimal(1000)),
        ("1Ki", Decimal(1024)),
        ("64Mi", Decimal(67108864)),
        ("2G", Decimal(2_000_000_000)),
        ("", None),
        ("m", None),
        ("fast", None),
        ("NaN", None),
        ("Infinity", None),
    ],
)
def test_a_quantity_is_an_exact_number(text: str, amount: Decimal | None) -> None:
    assert quantities.parse(text) == amount
