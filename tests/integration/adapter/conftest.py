"""Model servers for all tests that only call them: starting one costs more than most tests."""

from collections.abc import Iterator

import pytest

from model_apps import model_server, torture_app
from triton_server import Triton, triton


@pytest.fixture(scope="session")
def torture() -> Iterator[int]:
    """The port of a running torture application."""
    with model_server(torture_app()) as port:
        yield port


@pytest.fixture(scope="session")
def triton_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    """A real Triton with every model of `tests/support/triton_models`."""
    with triton(tmp_path_factory.mktemp("triton")) as server:
        yield server
