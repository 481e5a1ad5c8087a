"""The Helm chart, rendered by a real Helm: what an administrator grants and what is installed.

The table of rights below is the contract with administrators; the chart's must equal it. Whole renderings are kept in
snapshots/, so that no change to what users get goes unseen: `MODELSERVICE_WRITE_SNAPSHOTS=1` writes them anew.
"""

import filecmp
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import operator_process
from modelservice_operator import settings

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "helm" / "modelservice"
SNAPSHOTS = Path(__file__).with_name("snapshots")
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]

EVERYWHERE = {
    ("modelservice.dev", "modelservices"): {"get", "list", "watch", "patch"},
    ("", "namespaces"): {"get"},
}
"""Granted in the whole cluster even to an operator of listed namespaces: see helm/modelservice/templates/_rules.tpl."""

RIGHTS = {
    ("modelservice.dev", "modelservices/status"): {"patch"},
    ("apps", "deployments"): {"get", "list", "watch", "patch"},
    ("apps", "statefulsets"): {"get", "list", "watch", "patch"},
    ("apps", "daemonsets"): {"get", "list", "watch", "patch"},
    ("", "services"): {"get", "list", "watch", "create", "patch", "delete"},
    ("", "configmaps"): {"get", "list", "watch", "create", "patch", "delete"},
    ("discovery.k8s.io", "endpointslices"): {"list", "watch"},
    ("", "events"): {"create"},
    ("", "persistentvolumeclaims"): {"get"},
}

KEYS_OF_SERVICE_ACCOUNTS = {"/.well-known/openid-configuration", "/openid/v1/jwks"}
"""Paths that may be read, and only where an issuer is this cluster; every pod may by Kubernetes' own default."""

FLAVOUR_PLACES = {"default": ["operators"], "namespaces": ["ml", "vision"], "cluster-wide": ["the cluster"]}
ISSUERS = {
    "corp": {"issuer": "https://idp.example", "jwksUri": "https://idp.example/keys", "algorithms": ["RS256"]},
    "cluster": {"type": "Kubernetes", "namespaces": ["agents"]},
}
FLAVOURS = {
    "default": [],
    "namespaces": ["--set", "watchNamespaces={ml,vision}"],
    "cluster-wide": ["--set", "clusterWide=true"],
    "everything": [
        *("--set", "networkPolicy.enabled=true,networkPolicy.apiServerCIDRs={10.96.0.1/32}"),
        *("--set", "imagePullSecrets[0].name=registry,priorityClassName=system-cluster-critical"),
        *("--set-string", "podAnnotations.team=ml,podLabels.team=ml,nodeSelector.disk=ssd"),
        *("--set-json", f"auth.issuers={json.dumps(ISSUERS)}"),
        *("--set-string", f"image.digest=sha256:{'a' * 64},adapter.image.tag=9.9.9,logLevel=DEBUG"),
    ],
}


@pytest.fixture(scope="session")
def helm() -> str:
    """The helm program."""
    return operator_process.helm()


def run(helm: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm, *arguments], capture_output=True, text=True, check=False)


def template(helm: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["template", "release", str(CHART), "--namespace", "operators", "--kube-version", "1.34.4"]
    return run(helm, *command, *arguments)


def render(helm: str, *arguments: str) -> list[dict[str, Any]]:
    """The objects that the chart makes."""
    done = template(helm, *arguments)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def of_kind(objects: list[dict[str, Any]], kind: str, *, hook: bool = False) -> list[dict[str, Any]]:
    """The objects of a kind: those that are installed, or those that run once after an uninstall."""
    return [each for each in objects if each["kind"] == kind and hook == is_hook(each)]


def is_hook(each: dict[str, Any]) -> bool:
    return "helm.sh/hook" in each["metadata"].get("annotations", {})


def operator_pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    [deployment] = of_kind(objects, "Deployment")
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return pod


def operator_environment(objects: list[dict[str, Any]]) -> dict[str, str]:
    [container] = operator_pod(objects)["containers"]
    return {entry["name"]: entry["value"] for entry in container["env"]}


def rights_of(role: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    """(group, resource) to verbs. Rules that could say more than that are not ours."""
    rights: dict[tuple[str, str], set[str]] = {}
    for rule in role["rules"]:
        if "nonResourceURLs" in rule:
            assert (set(rule["nonResourceURLs"]), rule["verbs"]) == (KEYS_OF_SERVICE_ACCOUNTS, ["get"])
            rights["", "keys of service accounts"] = {"get"}
            continue
        assert set(rule) == {"apiGroups", "resources", "verbs"}
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                rights.setdefault((group, resource), set()).update(rule["verbs"])
    return rights


def test_helm_finds_nothing_to_complain_about(helm: str) -> None:
    done = run(helm, "lint", "--strict", str(CHART), "--kube-version", "1.34.4")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_rendered_chart_is_the_one_that_was_reviewed(helm: str, flavour: str) -> None:
    done = template(helm, *FLAVOURS[flavour])
    assert done.returncode == 0, done.stderr
    snapshot = SNAPSHOTS / f"chart-{flavour}.yaml"
    if os.environ.get("MODELSERVICE_WRITE_SNAPSHOTS"):
        snapshot.write_text(done.stdout)
    assert done.stdout == snapshot.read_text()


@pytest.mark.promise("least-privilege")
@pytest.mark.parametrize(
    ("flavour", "kind"), [("default", "Role"), ("namespaces", "Role"), ("cluster-wide", "ClusterRole")]
)
def test_the_operator_is_granted_exactly_the_verbs_it_uses(helm: str, flavour: str, kind: str) -> None:
    objects = render(helm, *FLAVOURS[flavour])
    found = [rights_of(role) for role in of_kind(objects, kind) + of_kind(objects, kind, hook=True)]
    assert [rights for rights in found if rights != EVERYWHERE] == [RIGHTS] * (len(FLAVOUR_PLACES[flavour]) * 2)
    everywhere = of_kind(objects, "ClusterRole") + of_kind(objects, "ClusterRole", hook=True)
    assert [rights_of(role) for role in everywhere].count(EVERYWHERE) == 2, "the operator's, and the uninstall hook's"


@pytest.mark.promise("least-privilege")
def test_the_keys_of_service_accounts_may_be_read_only_where_their_tokens_are_trusted(helm: str) -> None:
    cluster, corp = {"type": "Kubernetes"}, ISSUERS["corp"]
    elsewhere = {**cluster, "issuer": "https://other.example", "jwks": {"keys": []}}
    for issuers, granted in (({"a": cluster}, True), ({"a": corp, "b": elsewhere}, False), ({}, False)):
        objects = render(helm, "--set-json", f"auth.issuers={json.dumps(issuers)}")
        roles = of_kind(objects, "ClusterRole") + of_kind(objects, "ClusterRole", hook=True)
        found = [rights_of(role) for role in roles]
        assert [("", "keys of service accounts") in rights for rights in found] == [granted] * 2, issuers
        assert [rights_of(role) for role in of_kind(objects, "Role")] == [RIGHTS]


@pytest.mark.promise("auth")
def test_issuers_reach_the_operator_as_they_were_written(helm: str) -> None:
    given = json.dumps(ISSUERS)
    environment = operator_environment(render(helm, "--set-json", f"auth.issuers={given}"))
    known = settings.from_environment(environment).auth
    assert sorted(known.issuers) == ["cluster", "corp"]
    assert known.issuers["corp"].algorithms == ("RS256",)
    assert known.issuers["cluster"].namespaces == ("agents",)


@pytest.mark.promise("least-privilege")
def test_by_default_the_operator_works_in_its_own_namespace_alone(helm: str) -> None:
    objects = render(helm)
    assert [role["metadata"]["namespace"] for role in of_kind(objects, "Role")] == ["operators"]
    assert [rights_of(role) for role in of_kind(objects, "ClusterRole")] == [EVERYWHERE]
    assert operator_environment(objects)["MODELSERVICE_NAMESPACES"] == "operators"


@pytest.mark.promise("least-privilege")
def test_listed_namespaces_get_a_role_each_and_no_other_does(helm: str) -> None:
    objects = render(helm, *FLAVOURS["namespaces"])
    assert [role["metadata"]["namespace"] for role in of_kind(objects, "Role")] == ["ml", "vision"]
    bindings = of_kind(objects, "RoleBinding")
    assert [binding["metadata"]["namespace"] for binding in bindings] == ["ml", "vision"]
    subject = {"kind": "ServiceAccount", "name": "release-modelservice", "namespace": "operators"}
    assert [binding["subjects"] for binding in bindings] == [[subject]] * 2
    assert [rights_of(role) for role in of_kind(objects, "ClusterRole")] == [EVERYWHERE]
    environment = operator_environment(objects)
    assert environment["MODELSERVICE_NAMESPACES"] == "ml,vision"
    assert "MODELSERVICE_CLUSTER_WIDE" not in environment


def test_cluster_wide_takes_the_place_of_the_list(helm: str) -> None:
    objects = render(helm, *FLAVOURS["cluster-wide"])
    assert of_kind(objects, "Role") == []
    environment = operator_environment(objects)
    assert environment["MODELSERVICE_CLUSTER_WIDE"] == "true"
    assert "MODELSERVICE_NAMESPACES" not in environment


def test_cluster_wide_and_a_list_at_once_are_refused_with_a_sentence(helm: str) -> None:
    done = template(helm, "--set", "clusterWide=true,watchNamespaces={ml}")
    assert done.returncode != 0
    assert "clusterWide and watchNamespaces exclude each other" in done.stderr


@pytest.mark.promise("images-restricted")
def test_the_operator_pod_is_restricted_and_starts_one_at_a_time(helm: str) -> None:
    objects = render(helm)
    [deployment] = of_kind(objects, "Deployment")
    assert deployment["spec"]["replicas"] == 1
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    pod = operator_pod(objects)
    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert pod["terminationGracePeriodSeconds"] == 30
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert set(container["resources"]["limits"]) == {"memory"}


def test_the_images_are_those_of_this_version(helm: str) -> None:
    objects = render(helm)
    [container] = operator_pod(objects)["containers"]
    assert container["image"] == f"modelservice/operator:{VERSION}"
    assert operator_environment(objects)["MODELSERVICE_ADAPTER_IMAGE"] == f"modelservice/adapter:{VERSION}"


def test_a_digest_wins_over_a_tag(helm: str) -> None:
    digest = "sha256:" + "0" * 64
    objects = render(helm, "--set", f"image.tag=1.2.3,image.digest={digest},image.repository=example.com/operator")
    [container] = operator_pod(objects)["containers"]
    assert container["image"] == f"example.com/operator@{digest}"


@pytest.mark.promise("chart-values-checked")
@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("watchNamespace={ml}", "watchNamespace"),
        ("logLevel=LOUD", "logLevel"),
        ("clusterWide=perhaps", "clusterWide"),
        ("watchNamespaces={Not_A_Namespace}", "watchNamespaces"),
        ("watchNamespaces={ml,ml}", "watchNamespaces"),
        ("image.digest=latest", "digest"),
        ("resources.limit.memory=1Gi", "limit"),
        ("auth.issuer.corp.issuer=https://idp.example", "issuer"),
        ("auth.issuers.corp.issuer=https://idp.example", "jwks"),
        ("auth.issuers.corp.jwksUri=https://idp.example/keys", "issuer"),
        ("auth.issuers.Corp.type=Kubernetes", "Corp"),
        ("auth.issuers.corp.type=Kubernetes,auth.issuers.corp.algorithms={HS256}", "algorithms"),
        ("auth.issuers.corp.type=Kubernetes,auth.issuers.corp.leewaySeconds=61", "leewaySeconds"),
        ("auth.issuers.corp.type=Kubernetes,auth.issuers.corp.ca=x", "ca"),
        ("auth.logSubject=All", "logSubject"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(helm: str, value: str, named: str) -> None:
    done = template(helm, "--set", value)
    assert done.returncode != 0
    assert named in done.stderr


def test_an_uninstall_makes_modelservices_deletable_once_the_operator_is_gone(helm: str) -> None:
    objects = render(helm, *FLAVOURS["namespaces"])
    [job] = of_kind(objects, "Job", hook=True)
    [container] = job["spec"]["template"]["spec"]["containers"]
    [operator] = operator_pod(objects)["containers"]
    assert container["args"] == ["let-go"]
    assert {key: container[key] for key in ("image", "env", "securityContext")} == {
        key: operator[key] for key in ("image", "env", "securityContext")
    }
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "post-delete"
    # Its rights are made for it alone, and go with it.
    account = job["spec"]["template"]["spec"]["serviceAccountName"]
    hooks = [each for each in objects if is_hook(each) and each is not job]
    assert {each["kind"] for each in hooks} == {
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
    }
    assert {each["metadata"]["name"] for each in hooks} == {account, f"operators:{account}:modelservices"}
    assert all("hook-failed" in each["metadata"]["annotations"]["helm.sh/hook-delete-policy"] for each in hooks)


@pytest.mark.parametrize("value", ["letGoOnUninstall=false", "rbac.create=false"])
def test_an_uninstall_runs_nothing_where_that_is_not_wanted_or_not_granted(helm: str, value: str) -> None:
    assert [each["kind"] for each in render(helm, "--set", value) if is_hook(each)] == []


def test_a_cluster_that_is_too_old_is_refused(helm: str) -> None:
    done = run(helm, "template", "release", str(CHART), "--kube-version", "1.28.0")
    assert "kubeVersion" in done.stderr


def test_chart_and_project_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_the_chart_carries_the_generated_crds_and_no_others() -> None:
    generated = sorted(path.name for path in (REPOSITORY / "crds").glob("*.yaml"))
    assert sorted(path.name for path in (CHART / "crds").iterdir()) == generated
    _, different, errors = filecmp.cmpfiles(REPOSITORY / "crds", CHART / "crds", generated, shallow=False)
    assert (different, errors) == ([], []), "run: make generate"


def test_every_value_has_a_comment_and_a_place_in_the_schema() -> None:
    text = (CHART / "values.yaml").read_text()
    schema = json.loads((CHART / "values.schema.json").read_text())
    lines = text.splitlines()
    bare = [
        line
        for number, line in enumerate(lines)
        if re.match(r"^[A-Za-z]", line)
        and not (lines[number - 1].startswith("#") or re.match(r"^[A-Za-z]", lines[number - 1]))
    ]
    assert bare == []
    assert set(yaml.safe_load(text)) | {"global"} == set(schema["properties"])


@pytest.mark.promise("standalone")
@pytest.mark.promise("least-privilege")
def test_deployments_are_created_and_deleted_only_where_standalone_mode_is_switched_on(helm: str) -> None:
    [allowed] = [rights_of(role) for role in of_kind(render(helm, "--set", "standalone.enabled=true"), "Role")]
    deployments = ("apps", "deployments")
    assert allowed.pop(deployments) == RIGHTS[deployments] | {"create", "delete"}
    assert allowed == {resource: verbs for resource, verbs in RIGHTS.items() if resource != deployments}
