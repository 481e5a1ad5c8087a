"""From a tool's arguments to a request in OpenAI's API. Pure.

Owns which field carries which argument. Arguments have passed the tool's schema; what is checked here is what a plain
object schema cannot say: that a chat has either messages or a prompt.
"""

from typing import Any

import orjson

from modelservice_sidecar.backends.openapi_request import HttpRequest
from modelservice_sidecar.core.errors import InvalidArgumentsError
from modelservice_sidecar.core.openai import MODELS_PATH, Endpoint

_JSON = (b"content-type", b"application/json")


def body_of(endpoint: Endpoint, arguments: dict[str, Any]) -> dict[str, Any]:
    """The body for these arguments.

    Raises:
        InvalidArgumentsError: a chat with both or neither of messages and prompt.
    """
    body: dict[str, Any] = {"model": endpoint.default_model, **arguments}
    if endpoint.task != "chat":
        return body
    prompt, system = body.pop("prompt", None), body.pop("system", None)
    if (prompt is None) == ("messages" not in body):
        raise InvalidArgumentsError("Invalid arguments for chat: $: give either messages or prompt")
    if prompt is None:
        if system is not None:
            raise InvalidArgumentsError(
                "Invalid arguments for chat: $.system: goes with prompt; in messages it is a message of the role system"
            )
        return body
    said = [{"role": "user", "content": prompt}]
    body["messages"] = said if system is None else [{"role": "system", "content": system}, *said]
    return body


def post(endpoint: Endpoint, body: dict[str, Any], *, streamed: bool) -> HttpRequest:
    """The call itself."""
    accept = b"text/event-stream, application/json" if streamed else b"application/json"
    return HttpRequest(
        method="POST", target=endpoint.path, headers=[(b"accept", accept), _JSON], body=orjson.dumps(body)
    )


def models() -> HttpRequest:
    """The question for the model list."""
    return HttpRequest(method="GET", target=MODELS_PATH, headers=[(b"accept", b"application/json")], body=b"")


def unreadable(path: str) -> HttpRequest:
    """A request that no server can act on, for its body is no JSON: only whether the path is served can be answered.

    An empty object would not do: there are servers that complete an absent prompt, at the price of a whole answer.
    """
    return HttpRequest(method="POST", target=path, headers=[(b"accept", b"application/json"), _JSON], body=b"{")
