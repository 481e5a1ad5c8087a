"""Versions come from go.mod, and another Kubernetes gets a go.mod of its own."""

import pytest

from localcluster import programs
from localcluster.errors import ClusterError

PINNED = """\
module localcluster/kubernetes

go 1.25.0

require k8s.io/kubernetes v1.34.4

require (
	go.etcd.io/etcd/server/v3 v3.6.5
	k8s.io/api v0.34.4 // indirect
)

replace k8s.io/api => k8s.io/api v0.34.4
replace k8s.io/kubectl => k8s.io/kubectl v0.34.4
"""


def test_versions_are_read_from_single_requirements_and_from_blocks() -> None:
    assert programs.pinned_version("k8s.io/kubernetes", PINNED) == "1.34.4"
    assert programs.pinned_version("go.etcd.io/etcd/server/v3", PINNED) == "3.6.5"


def test_a_module_that_is_not_required_is_named() -> None:
    with pytest.raises(ClusterError, match="helm"):
        programs.pinned_version("helm.sh/helm/v3", PINNED)


def test_every_tool_with_a_version_has_it_pinned() -> None:
    go_mod = (programs.TOOLS_MODULE / "go.mod").read_text()
    for tool in (programs.KIND, programs.HELM, programs.CRICTL, programs.COREDNS):
        assert tool.module is not None
        assert programs.pinned_version(tool.module, go_mod)


def test_another_version_replaces_all_of_kubernetes_modules_and_forgets_indirect_requirements() -> None:
    assert programs.build_go_mod("1.33.7", PINNED) == (
        "module localcluster/kubernetes\n\ngo 1.25.0\n\n"
        "require k8s.io/kubernetes v1.33.7\nrequire go.etcd.io/etcd/server/v3 v3.6.5\n\n"
        "replace k8s.io/api => k8s.io/api v0.33.7\nreplace k8s.io/kubectl => k8s.io/kubectl v0.33.7\n"
    )
