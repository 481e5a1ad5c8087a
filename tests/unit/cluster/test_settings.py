"""What the environment and the command line may say, and what is refused."""

from pathlib import Path

import pytest

from localcluster import settings
from localcluster.errors import ClusterError
from localcluster.settings import ClusterOptions


@pytest.mark.parametrize(
    ("environment", "root"),
    [
        ({"HOME": "/home/ada"}, "/home/ada/.cache/modelservice/cluster"),
        ({"HOME": "/home/ada", "XDG_CACHE_HOME": ""}, "/home/ada/.cache/modelservice/cluster"),
        ({"HOME": "/home/ada", "XDG_CACHE_HOME": "/var/cache"}, "/var/cache/modelservice/cluster"),
    ],
)
def test_everything_lies_in_the_users_cache_folder(environment: dict[str, str], root: str) -> None:
    assert settings.read_folders(environment).root == Path(root)


@pytest.mark.parametrize("cache", ["relative", "/" + "x" * 60])
def test_a_cache_folder_in_which_no_engine_could_run_is_refused_by_its_name(cache: str) -> None:
    with pytest.raises(ClusterError, match=cache):
        settings.read_folders({"XDG_CACHE_HOME": cache})


@pytest.mark.parametrize(("value", "mode"), [("", "auto"), ("auto", "auto"), ("local", "local"), ("docker", "docker")])
def test_the_mode_is_read_from_its_variable(value: str, mode: str) -> None:
    assert settings.read_mode({"MODELSERVICE_CLUSTER": value}) == mode
    assert settings.read_mode({}) == "auto"


def test_an_unknown_mode_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(ClusterError, match="MODELSERVICE_CLUSTER=podman: must be local, docker or auto"):
        settings.read_mode({"MODELSERVICE_CLUSTER": "podman"})


@pytest.mark.parametrize("name", ["", "Upper", "-lead", "trail-", "x" * 41, "a/b", "../up"])
def test_names_that_are_no_dns_label_are_refused(name: str) -> None:
    with pytest.raises(ClusterError, match="lower-case letters"):
        ClusterOptions(name=name)


@pytest.mark.parametrize("options", [{"nodes": 0}, {"nodes": 11}, {"gpus": -1}])
def test_counts_out_of_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ClusterError, match="between"):
        ClusterOptions(**options)  # type: ignore[arg-type]


def test_versions_of_kubernetes_are_read_with_and_without_v() -> None:
    assert settings.parse_kubernetes_version("v1.34.4") == settings.parse_kubernetes_version("1.34.4") == "1.34.4"
    with pytest.raises(ClusterError, match="must look like"):
        settings.parse_kubernetes_version("1.34")
