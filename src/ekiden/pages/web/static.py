"""The files of the look. Their name has a fingerprint of their content: browsers may keep them for ever."""

import functools
import hashlib
import importlib.resources
from typing import Final

from ekiden.errors import StatusError
from ekiden.pages.web.messages import WebResponse

__all__ = ["STATIC", "asset", "serve_static"]

STATIC: Final = "/static/"
_KINDS: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_FOREVER: Final = {"cache-control": "public, max-age=31536000, immutable"}


@functools.cache
def _files() -> dict[str, tuple[str, bytes]]:
    """Name and content of every file, by the name that it is served with."""
    found: dict[str, tuple[str, bytes]] = {}
    for file in importlib.resources.files("ekiden.pages").joinpath("look", "static").iterdir():
        stem, _, ending = file.name.rpartition(".")
        if ending in _KINDS:
            content = file.read_bytes()
            found[f"{stem}.{hashlib.sha256(content).hexdigest()[:12]}.{ending}"] = (file.name, content)
    return found


@functools.cache
def asset(name: str) -> str:
    """The path of a file below the site's root: `asset("ekiden.css")`."""
    return next(STATIC + served for served, (known, _) in _files().items() if known == name)


def serve_static(path: str) -> WebResponse:
    """The file at a path below the site's root."""
    found = _files().get(path.removeprefix(STATIC))
    if found is None:
        raise StatusError(404, "There is no such file.")
    name, content = found
    return WebResponse(content, kind=_KINDS[name.rpartition(".")[2]], headers=_FOREVER)
