"""Who may talk to an HTTP server: the Host and Origin allowlists against DNS rebinding.

A browser that was lured to a hostile page can be made to send requests to a server on the user's
own machine. It cannot forge Host and Origin, so both are checked before anything is read.
Headers that say who asks, and for what, must not be sent twice: a proxy might have looked at the other one.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from ekiden.errors import UsageError

__all__ = ["LOCALHOST", "Guard", "sent_twice"]

LOCALHOST: Final = ("localhost", "127.0.0.1", "[::1]")
"""The default allowlist: safe on a laptop, and a deployment names its hosts anyway."""

_ONCE: Final = frozenset(
    {b"host", b"origin", b"authorization", b"content-type", b"mcp-session-id", b"last-event-id"}
)
"""Headers that a request has at most once (RFC 9112, 3.2, says so of Host)."""

_REMEMBERED: Final = 256
"""Header values are remembered with their verdict; a hostile client cannot fill more than this."""


class Guard:
    """Decides about Host and Origin values.

    An entry of an allowlist is a host (any port), a host with a port, or `*`. Origins default to
    those whose host is allowed by name; entries of `origins` are whole origins, such as `https://app.example`.
    A `*` among the hosts admits no origin: a proxy that checks hosts does not check who wrote the page.
    """

    def __init__(self, hosts: Iterable[str] = LOCALHOST, origins: Iterable[str] | None = None) -> None:
        if isinstance(hosts, str) or isinstance(origins, str):
            raise UsageError("allowed_hosts and allowed_origins are lists: write ['example.com']")
        self.hosts = frozenset(host.lower() for host in hosts)
        self.origins = None if origins is None else frozenset(origin.lower() for origin in origins)
        self.good_hosts: set[bytes | None] = set()
        """Values that `allows_host` has allowed before."""
        self._good_origins: set[bytes | None] = set()

    def allows_host(self, host: bytes | None) -> bool:
        """Whether a request that names `host` may be served."""
        if host is None or not self._fits(host.decode("latin-1").strip().lower()):
            return "*" in self.hosts
        return _remember(self.good_hosts, host)

    def allows_origin(self, origin: bytes) -> bool:
        """Whether a page of `origin` may talk to this server."""
        if origin in self._good_origins:
            return True
        text = origin.decode("latin-1").strip().lower()
        if self.origins is not None:
            allowed = "*" in self.origins or text in self.origins
        else:
            scheme, separator, host = text.partition("://")
            allowed = bool(separator) and scheme in ("http", "https") and self._fits(host)
        return allowed and _remember(self._good_origins, origin)

    def _fits(self, host: str) -> bool:
        if host in self.hosts and host != "*":
            return True
        name, separator, port = host.rpartition(":")
        return bool(separator) and port.isdecimal() and name != "*" and name in self.hosts


def _remember(values: set[bytes | None], value: bytes) -> bool:
    if len(values) < _REMEMBERED:
        values.add(value)
    return True


def sent_twice(pairs: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The name of a header that is there more often than it may be, if there is one."""
    seen: set[bytes] = set()
    for name, _ in pairs:
        if name in _ONCE and name in seen:
            return name.decode("latin-1")
        seen.add(name)
    return None
