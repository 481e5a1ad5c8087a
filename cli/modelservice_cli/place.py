"""Where an argument of the command line leads, and what is said where it leads nowhere.

Owns the reading of URLs. Speaks to nobody.
"""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit


class UsageError(Exception):
    """An argument cannot be obeyed; the text says what to write instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A server. `prefix` is the URL's path without a final slash."""

    host: str
    port: int
    prefix: str

    @property
    def is_local(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_url(url: str, what: str) -> Target:
    """The server that a URL names; `what` names the argument where it is not one.

    Raises:
        UsageError: it is not the URL of an HTTP server.
    """
    try:
        parts = urlsplit(url if "//" in url else f"//{url}", scheme="http")
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{what} {url!r} is not a URL; write for example http://127.0.0.1:8000") from error
    if parts.scheme != "http":
        raise UsageError(f"{what} speaks http only, not {parts.scheme}; write for example http://127.0.0.1:8000")
    if not parts.hostname or parts.query or parts.username:
        raise UsageError(f"{what} {url!r} names no plain host; write for example http://127.0.0.1:8000")
    host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
    return Target(host=host, port=port or 80, prefix=parts.path.rstrip("/"))
