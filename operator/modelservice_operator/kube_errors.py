"""API exceptions → the few kinds of failure the operator tells apart.

Owns the mapping and is, with `kube_api`, the only module that names the Kubernetes client. Bodies that are not a
`Status` are dropped rather than logged: they may come from a proxy and hold anything.

    KubeError
    ├── NotFoundError      404: gone, or not there yet
    ├── ConflictError      409: somebody else's field, a newer version, or a name that exists
    ├── InvalidError       400, 422: the API server or an admission policy refuses the object
    ├── ForbiddenError     401, 403: a missing permission, a quota, a namespace in deletion
    └── UnavailableError   429, 5xx, no connection: worth trying again
"""

import json
from dataclasses import dataclass
from typing import Any

import urllib3.exceptions
from kubernetes.client.exceptions import ApiException

_MAX_MESSAGE = 1024
"""Admission errors can quote whole objects; a condition message may hold 4096 characters."""


class KubeError(Exception):
    """A request to the API server failed. `str()` is one sentence a user can read."""


class NotFoundError(KubeError):
    """404."""


@dataclass(frozen=True)
class FieldConflict:
    """One field that another manager owns."""

    field: str
    message: str


class ConflictError(KubeError):
    """409. `fields` are the causes of a server-side apply conflict, empty for other conflicts."""

    def __init__(self, message: str, fields: tuple[FieldConflict, ...] = ()) -> None:
        """Keeps the causes beside the sentence."""
        super().__init__(message)
        self.fields = fields


class InvalidError(KubeError):
    """400 or 422."""


class ForbiddenError(KubeError):
    """401 or 403."""


class UnavailableError(KubeError):
    """The API server could not answer now."""


def translate(error: Exception) -> KubeError:
    """The failure that `error` is, chained by the caller with `from`."""
    if isinstance(error, urllib3.exceptions.HTTPError | OSError):
        return UnavailableError("The API server could not be reached.")
    if not isinstance(error, ApiException):
        return UnavailableError(f"The request could not be made ({type(error).__name__}).")
    status = _status(error)
    message = str(status.get("message") or f"The API server answered {error.status}.")[:_MAX_MESSAGE]
    match error.status:
        case 404:
            return NotFoundError(message)
        case 409:
            causes = (status.get("details") or {}).get("causes") or []
            fields = tuple(
                FieldConflict(field=str(cause.get("field", "")), message=str(cause.get("message", "")))
                for cause in causes
                if cause.get("reason") == "FieldManagerConflict"
            )
            return ConflictError(message, fields)
        case 400 | 422:
            return InvalidError(message)
        case 401 | 403:
            return ForbiddenError(message)
        case _:
            return UnavailableError(message)


def _status(error: ApiException) -> dict[str, Any]:
    try:
        body = json.loads(error.body or "")
    except ValueError:
        return {}
    return body if isinstance(body, dict) and body.get("kind") == "Status" else {}
