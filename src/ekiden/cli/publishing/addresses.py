"""Which addresses the MCP Registry accepts: of a server, of a bundle, of a repository, of a home page."""

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from ekiden.wire.json import JsonObject

__all__ = ["is_everybodys", "is_release", "is_secure", "repository_at"]

_OWNER: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,37}[A-Za-z0-9])?"
_PART: Final = r"[\w.-]+"
_REPOSITORY: Final = re.compile(rf"https://(github|gitlab)\.com/{_PART}/{_PART}", re.ASCII)
_RELEASES: Final = (
    re.compile(rf"https://github\.com/{_OWNER}/{_PART}/releases/download/[^/\s]+/[^/\s]+", re.ASCII),
    re.compile(
        rf"https://gitlab\.com/{_PART}(?:/{_PART})+/-/(?:releases/[^/\s]+/downloads/[^/\s]+|package_files/\d+/download)",
        re.ASCII,
    ),
)


def is_secure(url: str) -> bool:
    """Whether it is an https address of a host."""
    return _host(url) is not None


def is_everybodys(url: str) -> bool:
    """Whether others can reach it: https, no host of this machine or of a private network, no variables."""
    host = _host(url)
    if host is None or "{" in url or "}" in url:
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host != "localhost" and not host.endswith(".localhost")
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_global and not address.is_multicast


def is_release(url: str) -> bool:
    """Whether it is a file of a release on GitHub or GitLab, with `mcp` in its address."""
    return "mcp" in url.lower() and any(pattern.fullmatch(url) for pattern in _RELEASES)


def repository_at(url: str) -> JsonObject | None:
    """The repository on GitHub or GitLab that an address lies in.

    None if there is none, and for a project in a subgroup of GitLab: the registry knows owner and name only.
    """
    found = _REPOSITORY.match(url)
    if found is None:
        return None
    rest = url[found.end() :]
    is_whole = found[1] == "github" or rest in ("", "/") or rest.startswith("/-/")
    return {"url": found[0], "source": found[1]} if is_whole and rest[:1] in ("", "/", "#", "?") else None


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").removesuffix(".")
    except ValueError:
        return None
    return host if parts.scheme == "https" and host and re.fullmatch(r"[!-~]+", url) else None
