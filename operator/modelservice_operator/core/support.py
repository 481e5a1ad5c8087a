"""What of the spec this version can honour: the list of everything it cannot.

Owns one table. A field is taken out of it by the change that makes it work, together with its test.
"""

from collections.abc import Callable

from modelservice_api import v1alpha1
from modelservice_api.v1alpha1 import ModelServiceSpec

_MODES = (None, "Workload", "Standalone", "Manual")
_SERVER_TYPES = ("Auto", "OpenAPI", "V2", "OpenAI")

_UNSUPPORTED: tuple[tuple[str, Callable[[ModelServiceSpec], bool]], ...] = (
    ("injection.mode", lambda spec: spec.injection is not None and spec.injection.mode not in _MODES),
    ("injection.placement", lambda spec: spec.injection is not None and spec.injection.placement != "container"),
    ("backend.type", lambda spec: spec.backend is not None and spec.backend.type not in _SERVER_TYPES),
    ("backend.tvm", lambda spec: spec.backend is not None and spec.backend.tvm is not None),
    ("backend.torch", lambda spec: spec.backend is not None and spec.backend.torch is not None),
    ("backend.onnx", lambda spec: spec.backend is not None and spec.backend.onnx is not None),
    ("tools.pinning", lambda spec: spec.tools is not None and spec.tools.pinning != "Report"),
    (
        "gpu.manage",
        lambda spec: spec.gpu is not None and spec.gpu.manage and v1alpha1.mode_of(spec) != "Workload",
    ),
    ("rollout.upgradePolicy", lambda spec: spec.rollout is not None and spec.rollout.upgrade_policy != "Pinned"),
    ("rollout.autoReleaseAfter", lambda spec: spec.rollout is not None and spec.rollout.auto_release_after is not None),
    ("canary", lambda spec: bool(spec.canary)),
    ("autoscaling", lambda spec: bool(spec.autoscaling)),
)


def unsupported_fields(spec: ModelServiceSpec) -> list[str]:
    """Paths below `spec` that are set to something this version cannot do, in a fixed order."""
    return [path for path, is_asked_for in _UNSUPPORTED if is_asked_for(spec)]
