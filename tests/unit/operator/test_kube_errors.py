"""API answers become the few failures the operator tells apart."""

import json

import pytest
import urllib3.exceptions
from kubernetes.client.exceptions import ApiException

from modelservice_operator import kube_errors


def answer(status: int, **body: object) -> ApiException:
    error = ApiException(status=status)
    error.body = json.dumps({"kind": "Status", **body})
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (answer(404), kube_errors.NotFoundError),
        (answer(409), kube_errors.ConflictError),
        (answer(400), kube_errors.InvalidError),
        (answer(422), kube_errors.InvalidError),
        (answer(401), kube_errors.ForbiddenError),
        (answer(403), kube_errors.ForbiddenError),
        (answer(429), kube_errors.UnavailableError),
        (answer(500), kube_errors.UnavailableError),
        (answer(504), kube_errors.UnavailableError),
        (urllib3.exceptions.ProtocolError("reset"), kube_errors.UnavailableError),
        (ConnectionResetError(), kube_errors.UnavailableError),
        (RuntimeError("bug"), kube_errors.UnavailableError),
    ],
)
def test_every_failure_has_its_kind(error: Exception, kind: type[kube_errors.KubeError]) -> None:
    assert type(kube_errors.translate(error)) is kind


def test_a_field_conflict_names_field_and_manager() -> None:
    causes = [
        {"reason": "FieldManagerConflict", "field": ".metadata.annotations", "message": 'conflict with "helm"'},
        {"reason": "Other", "field": "x", "message": "y"},
    ]
    found = kube_errors.translate(answer(409, message="Apply failed", details={"causes": causes}))
    assert isinstance(found, kube_errors.ConflictError)
    assert found.fields == (kube_errors.FieldConflict(field=".metadata.annotations", message='conflict with "helm"'),)


def test_a_body_that_is_no_status_is_not_repeated() -> None:
    error = ApiException(status=502)
    error.body = "<html>secret proxy page</html>"
    assert str(kube_errors.translate(error)) == "The API server answered 502."


def test_a_long_message_is_cut() -> None:
    assert len(str(kube_errors.translate(answer(422, message="x" * 100_000)))) == 1024
