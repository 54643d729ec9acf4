"""Where an upstream server is, what it is sent, and how long it may take."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

import msgspec

from ekiden.client.target import Target, is_command, is_in_process, is_url
from ekiden.errors import (
    CallTimeout,
    HttpRefused,
    InternalError,
    InvalidResult,
    TooMuch,
    TransportError,
    UsageError,
)

__all__ = ["Upstream", "unavailable", "why_unavailable"]

_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_MOST_PROCESSES: Final = 32
"""Sessions with a command: each is a process, and one of Python or Node takes some 30 to 80 MB."""
_MOST_OVER_HTTP: Final = 128
"""Sessions with a URL: each takes two or three file descriptors, of which a process often has 1,024."""


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """One server behind a gateway."""

    name: str
    """Its name, which stands before the names of its tools where it is mounted."""
    target: Target
    """A URL, a command, a file, or a server in this process."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """Sent with every HTTP request to this upstream, and to no other."""
    forward_headers: tuple[str, ...] = ()
    """Headers of a client's request that are sent on with it. Only for servers of 2026 over HTTP."""
    env: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    cwd: str | None = None
    mode: Literal["auto", "modern", "legacy"] = "auto"
    timeout: float = 300.0
    """Seconds that one round of a call may take; the time in which a user answers does not count."""
    start_timeout: float = 60.0
    """Seconds until a server that is started, or connected to, must have answered."""
    sessions: int | None = None
    """Principals that may have a session with a server of 2025 at once, each its own. For a command it is a
    process. Without it, 32 for a command and 128 for a URL."""

    def __post_init__(self) -> None:
        for name, value in self.headers.items():
            _check_header(self.name, name)
            if any(letter in value for letter in "\r\n\0") or not value.isascii():
                raise UsageError(f"{self.name}: the value of the header {name!r} must be one line of ASCII")
        for name in self.forward_headers:
            _check_header(self.name, name)
        if (self.headers or self.forward_headers) and not is_url(self.target):
            raise UsageError(f"{self.name}: headers are for a `url`; a command gets secrets by `env`")
        for field in ("timeout", "start_timeout"):
            if not 0 < getattr(self, field) < float("inf"):
                raise UsageError(f"{self.name}: {field} must be a number of seconds above 0")
        if self.sessions is not None and self.sessions < 1:
            raise UsageError(f"{self.name}: sessions must be a number above 0")

    @property
    def replaced_headers(self) -> list[str]:
        """Headers of ours, with which lists are read, in whose place calls have those of their clients."""
        ours = {name.lower() for name in self.headers}
        return [name for name in self.forward_headers if name.lower() in ours]

    @property
    def most_sessions(self) -> int:
        """How many sessions of principals may be open at once."""
        if self.sessions is not None:
            return self.sessions
        return _MOST_PROCESSES if is_command(self.target) else _MOST_OVER_HTTP

    @property
    def address(self) -> str:
        """What it is, in words, for the log: never what it is sent."""
        if is_in_process(self.target):
            return "a server in this process"
        if is_url(self.target):
            place = urlsplit(self.target)  # A name and password, the path and the query may all be secrets.
            return f"{place.scheme}://{place.netloc.rpartition('@')[2]}"
        if isinstance(self.target, Path):
            return str(self.target)
        words = self.target.split() if isinstance(self.target, str) else self.target
        return words[0] if isinstance(words, Sequence) and words else ""


def _check_header(upstream: str, name: str) -> None:
    if _HEADER.fullmatch(name) is None:
        raise UsageError(f"{upstream}: {name!r} is not the name of an HTTP header")


def why_unavailable(error: BaseException) -> str:
    """Why an upstream cannot be used, for clients: no addresses, and nothing that it said."""
    if isinstance(error, HttpRefused):
        return f"it answered with HTTP status {error.status}"
    if isinstance(error, CallTimeout | TimeoutError):
        return "it did not answer in time"
    if isinstance(error, InvalidResult):
        return "it does not keep to the protocol"
    if isinstance(error, TooMuch):
        return "it sent more than the gateway takes"
    if isinstance(error, TransportError):
        return "it cannot be reached"
    return "it cannot be used"


def unavailable(name: str, why: str) -> InternalError:
    """The error for a request to an upstream that cannot be used."""
    return InternalError(f"The server behind {name!r} is not available: {why}", data={"upstream": name})
