"""Every name the operator computes: child objects, label values, field managers, the lock's value.

Names are made and shortened here and nowhere else. A shortened name ends in a hash of the whole one, so two long names
that share a beginning stay two names, and the same input always gives the same output.
"""

import hashlib
import re

from modelservice_api import wellknown

_MAX_LABEL = 63
"""RFC 1123 label: Service names and label values."""

_MAX_FIELD_MANAGER = 128


def service(name: str) -> str:
    """The Service in front of the adapters of the ModelService `name`."""
    return _fit(name, "-mcp")


def service_host(namespace: str, name: str) -> str:
    """The name under which pods of the cluster find that Service."""
    return f"{service(name)}.{namespace}.svc"


def service_hosts(namespace: str, name: str) -> tuple[str, ...]:
    """Every spelling by which clients in the cluster may name that Service, in the default cluster domain."""
    host = service(name)
    return (host, f"{host}.{namespace}", f"{host}.{namespace}.svc", f"{host}.{namespace}.svc.cluster.local")


def config_map(name: str) -> str:
    """The ConfigMap that holds the adapter's config document."""
    return _fit(name, "-mcp-config")


def label_value(name: str) -> str:
    """`name` as a label value: at most 63 characters."""
    return _fit(name, "")


def field_manager(uid: str) -> str:
    """One field manager per ModelService, so that the API server itself refuses a second adopter (409)."""
    return f"{wellknown.FIELD_MANAGER_PREFIX}.{uid[:8]}"[:_MAX_FIELD_MANAGER]


def owner(namespace: str, name: str, uid: str) -> str:
    """The value of the owner annotation on an adopted workload."""
    return f"{namespace}/{name}/{uid}"


def parse_owner(value: str) -> tuple[str, str, str] | None:
    """`(namespace, name, uid)` of an owner annotation, None when it is not one."""
    parts = value.split("/")
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 and all(parts) else None


def port_name(preferred: str, taken: frozenset[str]) -> str:
    """A port name that no container of the pod uses, at most 15 characters (IANA service name)."""
    if preferred not in taken:
        return preferred
    suffix = hashlib.sha256("/".join(sorted(taken)).encode()).hexdigest()[:4]
    return f"{preferred[:10]}-{suffix}"


def _fit(name: str, suffix: str) -> str:
    """`name + suffix` as a DNS label: dots become dashes, too long a name keeps its beginning and gains a hash."""
    label = re.sub(r"[^a-z0-9-]", "-", name.lower()).strip("-")
    if label == name and len(label) + len(suffix) <= _MAX_LABEL:
        return label + suffix
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    kept = label[: _MAX_LABEL - len(suffix) - len(digest) - 1].rstrip("-")
    return f"{kept}-{digest}{suffix}"
