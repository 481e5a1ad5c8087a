"""A request body decoded within bounds.

Owns what counts as JSON here: RFC 8259 in UTF-8, so no NaN, no Infinity, no lone surrogates; at most 1,024 deep (orjson's
bound); and not so many containers or members that decoding would hold the loop. Decoding cannot leave the loop: orjson keeps
the interpreter to itself while it works.
"""

from typing import Any, Final

import orjson

SMALL: Final = 64 * 1024
MAX_CONTAINERS: Final = 200_000
"""Lists and objects in one body. Four megabytes of `[],` hold 1.4 million and take a quarter of a second; an image as
nested lists holds less than a thousand."""
MAX_MEMBERS: Final = 200_000
"""Members of all objects in one body, told by their colons. Four megabytes of different names take as long as lists do."""


class BadJsonError(Exception):
    """The body is not JSON, or too much of it."""


def load(body: bytes) -> Any:
    """The decoded body.

    Raises:
        BadJsonError: see the module's docstring.
    """
    if len(body) > SMALL and (body.count(b"[") + body.count(b"{") > MAX_CONTAINERS or body.count(b":") > MAX_MEMBERS):
        raise BadJsonError
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadJsonError from error
