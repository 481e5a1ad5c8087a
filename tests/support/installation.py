"""The installed operator as e2e tests see it: where it runs, which namespaces it watches, when it is up.

Owns names only; `tests/e2e/conftest.py` installs.
"""

from dataclasses import dataclass

from cluster_fixtures import ClusterAccess

OPERATOR_NAMESPACE = "modelservice-system"
LONG_NAMESPACE = "n" * 63
NAMESPACE, DOOMED_NAMESPACE = "e2e", "e2e-doomed"
NAMESPACES = (NAMESPACE, DOOMED_NAMESPACE, LONG_NAMESPACE)


@dataclass(frozen=True, kw_only=True)
class Installation:
    """The installed operator."""

    cluster: ClusterAccess

    def wait_until_ready(self) -> None:
        """Waits for the operator's rollout."""
        self.cluster.kubectl("-n", OPERATOR_NAMESPACE, "rollout", "status", "deployment/modelservice", "--timeout=120s")
