"""How one tool's arguments map to an HTTP request: the values that reading a document makes and `openapi_request` follows.

Owns their shapes and the encoding of paths. Pure; knows neither documents nor schemas, so nothing is guessed at call time.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

Location = Literal["path", "query", "header", "cookie"]
BodyKind = Literal["json", "multipart", "form", "text", "bytes"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One parameter. `group` is the argument object it stands in, `None` where arguments are flat.

    `slashes`: the document says that the path value may be several segments, as `{file:path}` does.
    """

    argument: str
    name: str
    location: Location
    style: str
    explode: bool
    group: str | None = None
    as_json: bool = False
    slashes: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Body:
    """The request body. `argument` is `None` where its properties are arguments of their own.

    `files` are the properties whose values are files. Without any of its arguments, an `optional` body is not sent.
    `joined` are the form fields whose lists are one value, with what stands between; `part_types` are media types of
    multipart fields.
    """

    kind: BodyKind
    media_type: str
    argument: str | None
    optional: bool = False
    files: frozenset[str] = frozenset()
    joined: Mapping[str, str] = field(default_factory=dict)
    part_types: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Operation:
    """How to call one operation. `path` still holds its templates, `target` is the same encoded for the wire; `wrap` puts
    every JSON answer under `result`.

    `others` are the paths of the document that this one must not reach although its own value may hold slashes.
    """

    method: str
    path: str
    target: str
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    wrap: bool = False
    accept: str = "application/json, */*;q=0.5"
    others: tuple[re.Pattern[str], ...] = ()


def encode_path(path: str) -> str:
    """A path for the request line; what is encoded already stays."""
    return quote(path, safe="/-._~!$&'()*+,;=:@%")
