"""Makes small PyTorch models; run by the interpreter of the environment `torch`, never imported by a test.

Usage: ``python artifact_torch.py FOLDER [dense]``
"""

import json
import struct
import sys
import warnings
from pathlib import Path

import torch


class Net(torch.nn.Module):
    """Two layers; every weight is 1 until it is set."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, width)
        self.second = torch.nn.Linear(width, 3)
        for parameter in self.parameters():
            torch.nn.init.ones_(parameter)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Dense(torch.nn.Module):
    """One layer of 100 MB."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(5120, 5120, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(x)


class Turns(torch.nn.Module):
    """As long as a caller wants: multiplies a matrix once for each row."""

    def forward(self, turns: torch.Tensor) -> torch.Tensor:
        matrix = torch.eye(256)
        for _ in range(int(turns.item())):
            matrix = matrix @ torch.eye(256)
        return matrix.sum()


class Kinds(torch.nn.Module):
    """Gives back what it takes."""

    def forward(
        self, half: torch.Tensor, brain: torch.Tensor, yes: torch.Tensor, number: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        return half * 1, brain * 1, ~yes, number + 1


class Named(torch.nn.Module):
    """Answers with names."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"double": x * 2, "half": x / 2}


def main(folder: Path) -> None:
    """Every model."""
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    batch = torch.export.Dim("batch", min=1, max=64)
    rows = {"x": {0: batch}}
    net = Net().eval()
    export(folder / "net.pt2", net, (torch.ones(2, 4),), rows)
    export(folder / "named.pt2", Named(), (torch.ones(2),), None)
    export(
        folder / "kinds.pt2",
        Kinds(),
        (torch.ones(2).half(), torch.ones(2).bfloat16(), torch.ones(2).bool(), torch.ones(2).long()),
        None,
    )
    torch.jit.script(net).save(folder / "net.pt")
    torch.jit.script(Turns()).save(folder / "turns.pt")
    (folder / "ones.json").write_text(json.dumps(net(torch.ones(1, 4)).tolist()))
    state = net.state_dict()
    write_weights(folder / "net-twos.safetensors", {name: value * 2 for name, value in state.items()})
    write_weights(
        folder / "net-cut.safetensors", {name: value for name, value in state.items() if "second" not in name}
    )
    write_weights(folder / "net-other.safetensors", {name: value.double() for name, value in state.items()})
    (folder / "net-twos.json").write_text(json.dumps(doubled(net)(torch.ones(1, 4)).tolist()))


def dense(folder: Path) -> None:
    """A model of 100 MB, and other weights for it."""
    folder.mkdir(parents=True, exist_ok=True)
    model = Dense().eval()
    export(folder / "dense.pt2", model, (torch.ones(2, 5120),), {"x": {0: torch.export.Dim("batch", min=1, max=4)}})
    write_weights(folder / "dense-twos.safetensors", {"dense.weight": model.dense.weight.detach() * 2})


def export(path: Path, model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], dynamic: object) -> None:
    torch.export.save(torch.export.export(model.eval(), inputs, dynamic_shapes=dynamic), path)  # type: ignore[arg-type]


def doubled(net: Net) -> Net:
    """The same net with every weight doubled."""
    other = Net().eval()
    other.load_state_dict({name: value * 2 for name, value in net.state_dict().items()})
    return other


def write_weights(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """In the safetensors format."""
    types = {torch.float32: "F32", torch.float64: "F64"}
    header, body = {}, b""
    for name, tensor in tensors.items():
        data = tensor.contiguous().numpy().tobytes()
        header[name] = {
            "dtype": types[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    encoded = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(encoded)) + encoded + body)


if __name__ == "__main__":
    (dense if sys.argv[2:] else main)(Path(sys.argv[1]))
