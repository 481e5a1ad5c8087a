"""The signature file beside a compiled model: what it takes and gives, what it was made for, and where its weights are.

Owns the format and its version, and the step to a `Signature`. Pure. Compiled code does not tell all of this itself, and what
it tells is debug text. The format is described in docs/reference/signature-file.md.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from modelservice_api.adapter_config import Datatype
from modelservice_sidecar.core.tensors import MAX_RANK, Signature, TensorSpec

Name = Annotated[str, Field(min_length=1, max_length=256)]
Size = Annotated[int, Field(ge=0)]


class BadSignatureError(Exception):
    """The file is not in this format; the text says where and why."""


class _Part(BaseModel):
    # Unknown fields are errors: a newer format has a newer version.
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class TensorPart(_Part):
    """One input or output. `bounds` are the smallest and largest size of free dimensions (-1) by axis; null is no bound.

    `parameter` is the name in the compiled code, where that differs.
    """

    name: Name
    datatype: Datatype
    shape: Annotated[tuple[Annotated[int, Field(ge=-1)], ...], Field(max_length=MAX_RANK)]
    bounds: dict[Annotated[int, Field(ge=0, lt=MAX_RANK)], tuple[Size, Size | None]] = {}
    description: str = ""
    parameter: str = ""

    @model_validator(mode="after")
    def _bounds_fit(self) -> "TensorPart":
        for axis, (least, most) in self.bounds.items():
            if axis >= len(self.shape) or self.shape[axis] != -1:
                raise ValueError(f"bounds are given for dimension {axis}, which is not free")
            if most is not None and most < least:
                raise ValueError(f"dimension {axis} has {most} as its largest size and {least} as its smallest")
        return self

    def spec(self) -> TensorSpec:
        return TensorSpec(
            name=self.name,
            datatype=self.datatype,
            shape=self.shape,
            description=self.description,
            bounds=dict(self.bounds),
        )


class WeightPart(_Part):
    """One tensor of the weights' file, in the order in which the code takes them."""

    name: Name
    parameter: Name
    datatype: Datatype
    shape: tuple[Size, ...]


class WeightsPart(_Part):
    """The weights' file, relative to this one. `transform` is a function of the code that prepares them for the others."""

    file: Name
    tensors: tuple[WeightPart, ...]
    transform: str = ""


class MadePart(_Part):
    """What the code was made for, and with what."""

    triple: str = ""
    mcpu: str = ""
    features: tuple[str, ...] = ()
    tvm: str = ""
    tvm_ffi: str = ""


class SignatureFile(_Part):
    """The file. With `max_batch`, axis 0 of every tensor is the batch axis, which callers may leave out."""

    version: Literal["v1"]
    function: Name = "main"
    description: str = ""
    max_batch: Size = 0
    inputs: Annotated[tuple[TensorPart, ...], Field(min_length=1)]
    outputs: Annotated[tuple[TensorPart, ...], Field(min_length=1)]
    weights: WeightsPart | None = None
    made: MadePart = MadePart()

    def signature(self) -> Signature:
        """As the rest of the adapter knows it."""
        return Signature(
            inputs=tuple(part.spec() for part in self.inputs),
            outputs=tuple(part.spec() for part in self.outputs),
            max_batch=self.max_batch,
        )

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return self.model_dump(by_alias=True, mode="json", exclude_defaults=True) | {"version": "v1"}


def read(content: bytes) -> SignatureFile:
    """Read a signature file.

    Raises:
        BadSignatureError: it is not in this format.
    """
    try:
        return SignatureFile.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadSignatureError(f"{where or 'the file'}: {first['msg']}") from error
