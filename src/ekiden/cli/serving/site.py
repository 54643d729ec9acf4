"""How uvicorn serves pages on a port of their own."""

import secrets
from typing import Any, Final

import uvicorn

from ekiden.transports.server.asgi import StreamableHTTP
from ekiden.transports.server.http1.connections import Connections

__all__ = ["bounded_site", "site_config"]

_LEAVE_SECONDS: Final = 1
"""How long open pages have at the end: their streams do not end by themselves."""


def bounded_site(site: Any, name: str) -> StreamableHTTP:
    """A site behind the connections of our own server, with their limits.

    uvicorn waits without an end for a request that does not arrive, so that whoever opens as many connections
    as there are file descriptors keeps all others out. The site checks Host, and forms have codes.
    """
    from ekiden.server.server import Server
    from ekiden.stores.memory import MemoryStore

    # Its endpoint is nowhere. It must not open what `EKIDEN_STORE` names: that is the site's to look at.
    server = Server(name, store=MemoryStore(), keys=[secrets.token_bytes(32)])
    server.route("/", app=site)
    application = server.asgi(path=None, allowed_hosts=["*"], allowed_origins=["*"])
    application.gate.cors = None
    return application


def site_config(site: Any) -> uvicorn.Config:
    """uvicorn for a site of ours."""
    http: Any = Connections(site) if isinstance(site, StreamableHTTP) else "auto"
    return uvicorn.Config(
        site,
        http=http,
        lifespan="off",
        access_log=False,
        server_header=False,
        log_level="critical",  # It tells of every page that is still open at the end.
        timeout_graceful_shutdown=_LEAVE_SECONDS,
    )
