"""Kubernetes quantities as exact numbers, for comparing two spellings of the same amount.

Owns parsing only (Kubernetes API, `resource.Quantity`): decimal and binary suffixes, no exponents, which the CRD does
not allow.
"""

from decimal import Decimal, InvalidOperation

_FACTORS = {
    "m": Decimal("0.001"),
    "k": Decimal(1000),
    "M": Decimal(1000) ** 2,
    "G": Decimal(1000) ** 3,
    "T": Decimal(1000) ** 4,
    "Ki": Decimal(1024),
    "Mi": Decimal(1024) ** 2,
    "Gi": Decimal(1024) ** 3,
    "Ti": Decimal(1024) ** 4,
}


def parse(text: str) -> Decimal | None:
    """The amount, None when `text` is not a quantity."""
    suffix = next((unit for unit in sorted(_FACTORS, key=len, reverse=True) if text.endswith(unit)), "")
    try:
        number = Decimal(text.removesuffix(suffix))
    except InvalidOperation:
        return None
    return number * _FACTORS.get(suffix, Decimal(1)) if number.is_finite() else None
