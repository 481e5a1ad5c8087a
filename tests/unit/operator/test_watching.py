"""A watcher that ends is begun again, until it is told to stop."""

import queue

import kopf
import pytest

from modelservice_operator import watching
from modelservice_operator.watching import Watcher


def test_an_instance_that_fails_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watching, "SHORTEST_PAUSE_SECONDS", 0.0)
    begun: queue.Queue[int] = queue.Queue()

    def register(registry: kopf.OperatorRegistry) -> None:
        begun.put(1)
        raise RuntimeError("refused for good")

    watcher = Watcher("ml", register)
    watcher.start()
    for _ in range(3):
        begun.get(timeout=10)
    assert watcher.is_alive
    watcher.stop()
    watcher.join(10)
    assert not watcher.is_alive
    assert "RuntimeError: refused for good" in caplog.text
