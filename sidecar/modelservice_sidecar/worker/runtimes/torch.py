"""PyTorch models in a worker: programs of `torch.export`, and TorchScript.

Owns PyTorch: threads, the device and its share of memory, and the order of inputs and outputs. Loading such a file may run code
that is in it, which is another reason for a process with nothing in its environment.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from modelservice_sidecar.worker.runtimes import arrays
from modelservice_sidecar.worker.runtimes.arrays import RefusedError, UnusableError, Value
from modelservice_sidecar.worker.wire import Facts, Load


def load(load: Load) -> "TorchModel":
    """The model, ready to run."""
    try:
        import torch
    except ImportError as error:
        raise UnusableError(
            f"PyTorch cannot be imported ({error}); install modelservice[torch], or name an interpreter that has it."
        ) from error
    torch.set_num_threads(load.threads)
    device = torch.device("cpu")
    if load.has_device:
        # A CPU build raises on everything but this question.
        if not torch.cuda.is_available():
            raise UnusableError(
                "A device is assigned, but PyTorch sees none: a CPU build, no driver, or no such device."
            )
        device = torch.device("cuda:0")
        if load.memory_fraction is not None:
            torch.cuda.set_per_process_memory_fraction(load.memory_fraction, device)
    expected = load.expected or {}
    try:
        if expected.get("exported"):
            program = torch.export.load(load.artifact)
            if load.has_device:
                from torch.export.passes import move_to_device_pass

                program = move_to_device_pass(program, str(device))
            return TorchModel(torch, program.module(), program.call_spec.in_spec, device, expected)
        script = torch.jit.load(load.artifact, map_location=device).eval()
    except Exception as error:
        raise UnusableError(f"PyTorch {torch.__version__} cannot load it: {_first_line(error)}.") from error
    if load.function != "main":
        script = getattr(script, load.function, None)
        if script is None:
            raise UnusableError(f"It has no method {load.function}; set `function` to one that it has.")
    return TorchModel(torch, script, None, device, expected)


class TorchModel:
    """One module. `tree` is how an exported program wants its inputs put together; without it, one after another."""

    def __init__(self, torch: Any, module: Any, tree: Any, device: Any, expected: Mapping[str, Any]) -> None:
        self._torch = torch
        self._module = module
        self._tree = tree
        self._device = device
        self._inputs = [part["name"] for part in expected["inputs"]]
        self._outputs = [part["name"] for part in expected["outputs"]]
        self.facts = Facts()

    def run(self, inputs: Mapping[str, Value]) -> Mapping[str, Value]:
        """The outputs for these inputs."""
        from torch.utils import _pytree as pytree

        given: Any = [self._tensor(inputs[name]) for name in self._inputs]
        keywords: dict[str, Any] = {}
        if self._tree is not None:
            given, keywords = pytree.tree_unflatten(given, self._tree)
        with self._torch.inference_mode():
            try:
                answered = self._module(*given, **keywords)
            except (
                AssertionError
            ) as error:  # how an exported program says that an input is not what it was exported for
                raise RefusedError(_first_line(error)) from error
        found = pytree.tree_leaves(answered)
        if len(found) != len(self._outputs):
            raise ValueError(f"the model gave {len(found)} outputs, its signature says {len(self._outputs)}")
        return {name: self._value(tensor) for name, tensor in zip(self._outputs, found, strict=True)}

    def load_weights(self) -> None:
        """Nothing: weights are in the model's file."""

    def _tensor(self, value: Value) -> Any:
        if value.datatype == "BF16":
            tensor = self._torch.from_numpy(value.array.view(np.int16)).view(self._torch.bfloat16)
        else:
            tensor = self._torch.from_numpy(value.array)
        return tensor.to(self._device)

    def _value(self, tensor: Any) -> Value:
        if not isinstance(tensor, self._torch.Tensor):
            return arrays.of(np.asarray(tensor))
        tensor = tensor.detach().to("cpu").contiguous()
        if tensor.dtype == self._torch.bfloat16:
            return Value("BF16", tensor.view(self._torch.int16).numpy().view(np.uint16))
        return arrays.of(tensor.numpy())


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).split("\n", 1)[0].rstrip(".")
