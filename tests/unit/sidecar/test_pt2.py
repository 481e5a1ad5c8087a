"""Reading an exported program's signature from its JSON. Real files are read in tests/integration/adapter/test_torch.py."""

import json
from typing import Any

import pytest

from modelservice_sidecar.core import pt2


def document(**change: Any) -> bytes:
    """What torch.export writes, with only what is read."""
    symbol = {"as_expr": {"expr_str": "Symbol('s77', positive=True, integer=True)"}}
    whole: dict[str, Any] = {
        "schema_version": {"major": 8, "minor": 20},
        "range_constraints": {"s77": {"min_val": 1, "max_val": 64}},
        "graph_module": {
            "graph": {
                "tensor_values": {
                    "x": {"dtype": 7, "sizes": [symbol, {"as_int": 4}]},
                    "y": {"dtype": 13, "sizes": [{"as_expr": {"expr_str": "2*s77"}}]},
                }
            },
            "signature": {
                "input_specs": [
                    {"parameter": {"arg": {"name": "p"}, "parameter_name": "p"}},
                    {"user_input": {"arg": {"as_tensor": {"name": "x"}}}},
                ],
                "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "y"}}}}],
            },
            "module_call_graph": [
                {"signature": {"out_spec": '[1, {"type": null, "context": null, "children_spec": []}]'}}
            ],
        },
    }
    return json.dumps(whole | change).encode()


def test_inputs_and_outputs_are_tensors_with_the_bounds_of_the_export() -> None:
    found = pt2.read(document())
    assert [(spec.name, str(spec)) for spec in (*found.inputs, *found.outputs)] == [
        ("x", "FP32[1..64, 4]"),
        ("output", "BF16[?]"),
    ]


@pytest.mark.parametrize("most", [None, 2**63 - 1])
def test_an_export_without_a_bound_has_none(most: int | None) -> None:
    found = pt2.read(document(range_constraints={"s77": {"min_val": 0, "max_val": most}}))
    assert found.inputs[0].bounds == {0: (0, None)}


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"{}", document(graph_module={}), document(graph_module=None)]
)
def test_another_document_is_refused(content: bytes) -> None:
    with pytest.raises(pt2.Pt2Error, match=r"is not what torch\.export writes"):
        pt2.read(content)


def test_an_input_that_is_no_tensor_is_refused() -> None:
    whole = json.loads(document())
    whole["graph_module"]["signature"]["input_specs"].append({"user_input": {"arg": {"as_int": 3}}})
    with pytest.raises(pt2.Pt2Error, match="takes something that is no tensor"):
        pt2.read(json.dumps(whole).encode())


def test_a_datatype_that_callers_cannot_be_told_is_refused() -> None:
    whole = json.loads(document())
    whole["graph_module"]["graph"]["tensor_values"]["x"]["dtype"] = 10
    with pytest.raises(pt2.Pt2Error, match="datatype number 10"):
        pt2.read(json.dumps(whole).encode())


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["m/models/model.json"], "exported"),
        (["m/data/aotinductor/model/x.so"], "compiled"),
        (["m/code/__torch__.py", "m/constants.pkl"], "script"),
        (["m/data.pkl"], ""),
        ([], ""),
    ],
)
def test_archives_are_told_apart_by_their_entries(names: list[str], kind: str) -> None:
    assert pt2.kind_of(names).kind == kind
