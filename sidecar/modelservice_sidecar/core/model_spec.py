"""What somebody declared about a model, held against what the model itself says.

Owns the comparison and its wording; a ModelService's `spec.model` and a model repository's `metadata.json` are compared by
the same rules. Pure: who declared, who looked and what follows from a difference is others' business.
"""

from collections.abc import Sequence

from modelservice_api.adapter_config import ModelConfig, TensorConfig
from modelservice_sidecar.core.tensors import Signature, TensorSpec


def differences(declared: ModelConfig, signature: Signature) -> tuple[str, ...]:
    """Every way in which the model is not what was declared, one sentence each; none where they agree.

    A declared dimension of -1 allows any size, and a declared size fits a dimension that is free in the model. Shapes have
    the batch axis where the model has one. Nothing is compared with an empty list. What the model has beyond the declared
    is a difference only where callers would have to give it.
    """
    found: list[str] = []
    if declared.inputs:
        found += _compared("input", "takes", declared.inputs, signature.inputs, batched=signature.batched)
        known = {tensor.name for tensor in declared.inputs}
        found += [
            f"The model needs the input {spec.name} ({spec}), which is not declared."
            for spec in signature.inputs
            if not spec.optional and spec.name not in known and spec.key not in known
        ]
    if declared.outputs:
        found += _compared("output", "gives", declared.outputs, signature.outputs, batched=signature.batched)
    return tuple(found)


def _compared(
    kind: str, verb: str, declared: Sequence[TensorConfig], specs: Sequence[TensorSpec], *, batched: bool
) -> list[str]:
    by_name = {spec.key: spec for spec in specs} | {spec.name: spec for spec in specs}
    names = ", ".join(spec.name for spec in specs) or "none"
    found: list[str] = []
    for tensor in declared:
        spec = by_name.get(tensor.name)
        if spec is None:
            found.append(f"The {kind} {tensor.name} is declared, but the model has no such {kind}; it has {names}.")
        elif tensor.datatype != spec.datatype or not _fits(tensor.shape, spec):
            batch = ", of which the first dimension is the batch" if batched and not _fits(tensor.shape, spec) else ""
            said = f"{tensor.datatype}[{', '.join('?' if size < 0 else str(size) for size in tensor.shape)}]"
            found.append(f"The {kind} {tensor.name} is declared as {said}, but the model {verb} {spec}{batch}.")
    return found


def _fits(shape: Sequence[int], spec: TensorSpec) -> bool:
    if len(shape) != len(spec.shape):
        return False
    for axis, size in enumerate(shape):
        least, most = spec.range_of(axis)
        if size >= 0 and (size < least or (most is not None and size > most)):
            return False
    return True
