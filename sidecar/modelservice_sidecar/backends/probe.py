"""Which kind of model server answers at a port.

Owns the order of kinds. A later kind adds one row; nothing else changes here.
"""

from collections.abc import Callable

from modelservice_api.adapter_config import BackendConfig, BackendType
from modelservice_sidecar.backends.base import Backend, Description
from modelservice_sidecar.backends.openapi import OpenAPIBackend
from modelservice_sidecar.core.errors import DescribeError
from modelservice_sidecar.upstream import Pool

Make = Callable[[Pool, BackendConfig], Backend]

# Most specific first: a server of a specific kind may serve an OpenAPI document as well.
KINDS: dict[BackendType, Make] = {
    "OpenAPI": lambda pool, config: OpenAPIBackend(pool, config.open_api),
}


async def find(pool: Pool, config: BackendConfig) -> tuple[Backend, Description]:
    """The first kind that can describe what is there.

    Raises:
        DescribeError: none can; the text of the kind that came closest.
    """
    kinds = KINDS if config.type == "Auto" else {config.type: KINDS[config.type]}
    closest: DescribeError | None = None
    for make in kinds.values():
        backend = make(pool, config)
        try:
            return backend, await backend.describe()
        except DescribeError as error:
            await backend.aclose()
            # "It is this kind, and broken" says more than "it is not this kind".
            if closest is None or error.state == "Invalid":
                closest = error
    assert closest is not None
    raise closest
