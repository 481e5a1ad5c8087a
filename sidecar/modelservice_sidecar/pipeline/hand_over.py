"""Stage `hand_over`: lets another pod answer what this pod's model server did not even receive.

Owns when a peer is asked: once, before or after this pod's own model server. How is `peers`' part.
"""

from modelservice_sidecar.backends.base import Answer
from modelservice_sidecar.core.errors import BackendUnreachableError
from modelservice_sidecar.peers import Peers
from modelservice_sidecar.pipeline.call import Call, Handler


class HandOver:
    """Outside `check_answer`: a peer has checked its answer already."""

    __slots__ = ("_inner", "_peers")

    def __init__(self, inner: Handler, *, peers: Peers) -> None:
        self._inner = inner
        self._peers = peers

    async def __call__(self, call: Call) -> Answer:
        if call.context.handed_over:
            return await self._inner(call)
        if self._peers.come_first:
            try:
                return await self._ask_peer(call)
            except BackendUnreachableError:
                return await self._inner(call)
        try:
            return await self._inner(call)
        except BackendUnreachableError:
            return await self._ask_peer(call)

    async def _ask_peer(self, call: Call) -> Answer:
        return await self._peers.call(call.tool.name, call.arguments, call.context, call.credentials)
