"""kind's configuration is changed only where it has to be."""

import pytest

from localcluster import kind_config, settings
from localcluster.errors import ClusterError

GIVEN = """\
# A comment.
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
networking:
  # Pods.
  podSubnet: 10.1.0.0/16
  apiServerPort: 6443
nodes:
- role: control-plane
  labels: {zone: a}
"""


def test_without_wishes_the_configuration_stays_as_it_is() -> None:
    assert kind_config.build_config(GIVEN, nodes=None, api_address=None) == GIVEN


def test_nodes_are_one_control_plane_and_the_rest_workers() -> None:
    changed = kind_config.build_config(GIVEN, nodes=3, api_address=None)
    assert changed == GIVEN.replace("  labels: {zone: a}\n", "- role: worker\n- role: worker\n")


def test_the_api_servers_address_replaces_what_is_said_about_it_and_nothing_else() -> None:
    changed = kind_config.build_config(GIVEN, nodes=None, api_address="198.18.0.2")
    expected = "  apiServerAddress: 198.18.0.2\n  apiServerPort: -1\n  # Pods.\n  podSubnet: 10.1.0.0/16\n"
    assert kind_config.split_blocks(changed)["networking"] == "networking:\n" + expected
    assert kind_config.split_blocks(changed)["nodes"] == kind_config.split_blocks(GIVEN)["nodes"]


def test_the_projects_own_configuration_gets_a_networking_block() -> None:
    changed = kind_config.build_config(settings.KIND_CONFIG.read_text(), nodes=None, api_address="198.18.0.2")
    assert changed.endswith("networking:\n  apiServerAddress: 198.18.0.2\n  apiServerPort: -1\n")


@pytest.mark.parametrize(
    "block", ["networking: {podSubnet: 10.1.0.0/16}\n", "networking:\n    podSubnet: 10.1.0.0/16\n"]
)
def test_a_networking_block_in_another_style_is_refused_rather_than_broken(block: str) -> None:
    with pytest.raises(ClusterError, match="networking"):
        kind_config.build_config(f"kind: Cluster\n{block}", nodes=None, api_address="198.18.0.2")
