"""Fixtures that more than one kind of test uses: a plain API server and a cluster, both from `tests/cluster`."""

from cluster_fixtures import api_server, cluster

__all__ = ["api_server", "cluster"]
