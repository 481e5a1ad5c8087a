"""The example service alone, around a stand-in model: its HTTP interface is what a team would have, and only that.

The real model is trained when the image is built and is asked by tests/e2e/test_images.py.
"""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from fastapi.testclient import TestClient

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "fastapi-digits"
BLANK = [[0.0] * 8 for _ in range(8)]


class Classifier:
    """Reads a seven in everything, and remembers what it was shown."""

    def __init__(self) -> None:
        self.shown: list[list[float]] = []

    def predict_proba(self, rows: list[list[float]]) -> list[list[float]]:
        self.shown += rows
        return [[0.75 if digit == 7 else 0.25 / 9 for digit in range(10)] for _ in rows]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fastapi_digits_app", FOLDER / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def classifier() -> Classifier:
    return Classifier()


@pytest.fixture
def client(example: ModuleType, classifier: Classifier) -> Iterator[TestClient]:
    model = {"name": "digits", "version": "1.0.0", "accuracy": 0.96, "classifier": classifier}
    with TestClient(example.create_app(model)) as client:
        yield client


def test_a_picture_is_answered_with_the_likeliest_digit(client: TestClient) -> None:
    answer = client.post("/predict", json={"pixels": BLANK})
    assert answer.status_code == 200
    assert answer.json() == {"digit": 7, "confidence": 0.75}


def test_the_model_sees_the_rows_one_after_another(client: TestClient, classifier: Classifier) -> None:
    picture = [[float(column % 2 + row) for column in range(8)] for row in range(8)]
    client.post("/predict", json={"pixels": picture})
    assert classifier.shown == [[pixel for row in picture for pixel in row]]


@pytest.mark.parametrize(
    "pixels",
    [
        pytest.param(BLANK[:7], id="a row too few"),
        pytest.param([[0.0] * 9, *BLANK[1:]], id="a pixel too many"),
        pytest.param([[17.0] + [0.0] * 7, *BLANK[1:]], id="more ink than there is"),
        pytest.param([["dark"] + [0.0] * 7, *BLANK[1:]], id="a word for a pixel"),
    ],
)
def test_what_is_no_picture_never_reaches_the_model(
    client: TestClient, classifier: Classifier, pixels: list[list[object]]
) -> None:
    assert client.post("/predict", json={"pixels": pixels}).status_code == 422
    assert classifier.shown == []


def test_it_tells_which_model_is_loaded(client: TestClient) -> None:
    assert client.get("/model").json() == {"name": "digits", "version": "1.0.0", "accuracy": 0.96}


def test_its_openapi_document_has_the_two_operations_and_not_the_probe(client: TestClient) -> None:
    assert set(client.get("/openapi.json").json()["paths"]) == {"/predict", "/model"}


def test_the_service_knows_nothing_of_us() -> None:
    sources = "".join(path.read_text() for path in FOLDER.glob("*.py"))
    imports = [line for line in sources.splitlines() if line.lstrip().startswith(("import ", "from "))]
    assert [line for line in imports if "modelservice" in line or "mcp" in line] == []
