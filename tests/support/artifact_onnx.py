"""Makes small ONNX models; run by the interpreter of the environment `onnx`, never imported by a test.

Usage: ``python artifact_onnx.py FOLDER``
"""

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto as Types
from onnx import helper, numpy_helper


def main(folder: Path) -> None:
    """Every model, as `NAME.onnx`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, graph in {
        "linear": linear(2.0),
        "linear-heavier": linear(3.0),
        "linear-wider": linear(2.0, width=3),
        "types": types(),
        "slow": slow(),
        "sequence": sequence(),
    }.items():
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        onnx.checker.check_model(model)
        onnx.save(model, folder / f"{name}.onnx")


def linear(weight: float, width: int = 2) -> onnx.GraphProto:
    """`y = weight * x` for any number of rows."""
    return helper.make_graph(
        [helper.make_node("Mul", ["x", "weight"], ["y"])],
        "linear",
        [helper.make_tensor_value_info("x", Types.FLOAT, ["rows", width])],
        [helper.make_tensor_value_info("y", Types.FLOAT, ["rows", width])],
        [numpy_helper.from_array(np.array([weight], np.float32), "weight")],
    )


def types() -> onnx.GraphProto:
    """Gives back what it takes, in every datatype that both sides know."""
    kinds = [
        Types.BOOL,
        Types.UINT8,
        Types.UINT16,
        Types.UINT32,
        Types.UINT64,
        Types.INT8,
        Types.INT16,
        Types.INT32,
        Types.INT64,
        Types.FLOAT16,
        Types.FLOAT,
        Types.DOUBLE,
        Types.STRING,
    ]
    names = [Types.DataType.Name(kind).lower() for kind in kinds]
    return helper.make_graph(
        [helper.make_node("Identity", [name], [f"same_{name}"]) for name in names],
        "types",
        [helper.make_tensor_value_info(name, kind, [2]) for name, kind in zip(names, kinds, strict=True)],
        [helper.make_tensor_value_info(f"same_{name}", kind, [2]) for name, kind in zip(names, kinds, strict=True)],
    )


def slow() -> onnx.GraphProto:
    """Multiplies a matrix `turns` times: as long as a caller wants."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["before", "matrix"], ["after"]),
            helper.make_node("Identity", ["go_on"], ["on"]),
        ],
        "turn",
        [
            helper.make_tensor_value_info("turn", Types.INT64, []),
            helper.make_tensor_value_info("go_on", Types.BOOL, []),
            helper.make_tensor_value_info("before", Types.FLOAT, [256, 256]),
        ],
        [
            helper.make_tensor_value_info("on", Types.BOOL, []),
            helper.make_tensor_value_info("after", Types.FLOAT, [256, 256]),
        ],
    )
    matrix = numpy_helper.from_array(np.eye(256, dtype=np.float32), "matrix")
    yes = numpy_helper.from_array(np.array(True), "yes")
    return helper.make_graph(
        [
            helper.make_node("Loop", ["turns", "yes", "matrix"], ["last"], body=body),
            helper.make_node("ReduceSum", ["last"], ["total"], keepdims=0),
        ],
        "slow",
        [helper.make_tensor_value_info("turns", Types.INT64, [])],
        [helper.make_tensor_value_info("total", Types.FLOAT, [])],
        [matrix, yes],
    )


def sequence() -> onnx.GraphProto:
    """A tensor beside a sequence, as classifiers have it."""
    return helper.make_graph(
        [
            helper.make_node("Identity", ["x"], ["y"]),
            helper.make_node("SequenceConstruct", ["x"], ["all"]),
        ],
        "sequence",
        [helper.make_tensor_value_info("x", Types.FLOAT, [1])],
        [
            helper.make_tensor_value_info("y", Types.FLOAT, [1]),
            helper.make_tensor_sequence_value_info("all", Types.FLOAT, [1]),
        ],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
