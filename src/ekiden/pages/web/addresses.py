"""Whose page a URL leads to. The URL may be a stranger's."""

from typing import Any
from urllib.parse import urlsplit

__all__ = ["host_of"]


def host_of(url: Any) -> str:
    """The host that a URL of the web leads to, not what stands before an @; empty for any other URL."""
    if not isinstance(url, str):
        return ""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https"):
        return ""
    return host if port is None else f"{host}:{port}"
