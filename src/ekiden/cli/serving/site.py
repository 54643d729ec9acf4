"""How uvicorn serves pages on a port of their own."""

from typing import Any, Final

import uvicorn

__all__ = ["site_config"]

_LEAVE_SECONDS: Final = 1
"""How long open pages have at the end: their streams do not end by themselves."""


def site_config(site: Any) -> uvicorn.Config:
    """uvicorn for a site of ours."""
    return uvicorn.Config(
        site,
        lifespan="off",
        access_log=False,
        server_header=False,
        log_level="critical",  # It tells of every page that is still open at the end.
        timeout_graceful_shutdown=_LEAVE_SECONDS,
    )
