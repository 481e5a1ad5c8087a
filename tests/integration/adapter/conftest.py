"""One torture application for all tests that only call it: starting it costs more than most tests."""

from collections.abc import Iterator

import pytest

from model_apps import model_server, torture_app


@pytest.fixture(scope="session")
def torture() -> Iterator[int]:
    """The port of a running torture application."""
    with model_server(torture_app()) as port:
        yield port
