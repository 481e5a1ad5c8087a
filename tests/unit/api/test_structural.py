"""The schema generator expresses what Kubernetes can hold and raises on everything else."""

from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel, Field

from modelservice_api.structural import NotStructuralError, structural_schema

Bounded = Annotated[str, Field(max_length=8)]


class Inner(BaseModel):
    """An inner type."""

    name: Bounded
    cel: ClassVar[tuple[tuple[str, str], ...]] = (("self.name != ''", "name is empty"),)


class Outer(BaseModel):
    """An outer type."""

    inner: Inner | None = None
    names: Annotated[tuple[Bounded, ...], Field(max_length=3)] = ()
    count: Annotated[int, Field(ge=1)] = 2
    free: dict[str, Any] = {}


def test_a_type_becomes_a_structural_schema() -> None:
    assert structural_schema(Outer) == {
        "type": "object",
        "description": "An outer type.",
        "properties": {
            "inner": {
                "type": "object",
                "description": "An inner type.",
                "properties": {"name": {"type": "string", "maxLength": 8}},
                "required": ["name"],
                "x-kubernetes-validations": [{"rule": "self.name != ''", "message": "name is empty"}],
            },
            "names": {
                "type": "array",
                "maxItems": 3,
                "items": {"type": "string", "maxLength": 8},
                "x-kubernetes-list-type": "atomic",
            },
            "count": {"type": "integer", "minimum": 1, "default": 2},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }


def model_with(annotation: Any) -> type[BaseModel]:
    return type("Model", (BaseModel,), {"__annotations__": {"field": annotation}})


@pytest.mark.parametrize(
    ("annotation", "says"),
    [
        (str, "max_length"),
        (tuple[int, ...], "max_length"),
        (dict[str, int], "number of keys"),
        (int | Bounded, "union"),
        (float, "floats"),
        (Annotated[int, Field(gt=0)], "exclusiveMinimum"),
        (Annotated[int, Field(multiple_of=2)], "multipleOf"),
        (tuple[int, int], "prefixItems"),
        (Any, "type on every node"),
    ],
)
def test_what_cannot_be_expressed_is_named_with_its_path(annotation: Any, says: str) -> None:
    with pytest.raises(NotStructuralError, match=says) as caught:
        structural_schema(model_with(annotation))
    assert "Model.field" in str(caught.value)
