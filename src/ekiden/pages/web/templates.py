"""The templates of the look. What is put into one is escaped, and a name that is missing is an error."""

import functools
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ekiden.errors import UsageError
from ekiden.pages.web.static import asset

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
except ImportError as error:
    raise UsageError(f"pages need `pip install ekiden[pages]` ({error})") from error

__all__ = ["render"]


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ekiden.pages", "look/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    own: Any = environment  # jinja2 does not say what these two dicts hold.
    own.globals["asset"] = asset
    own.filters.update(when=_when, iso=_iso, lasting=lasting)
    return environment


def render(name: str, values: Mapping[str, Any]) -> str:
    """A template with its values."""
    return _environment().get_template(name).render(values)


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _when(seconds: float) -> str:
    """`17 Nov 2026, 21:04 UTC`."""
    moment = _moment(seconds)
    return f"{moment.day} {moment:%b %Y, %H:%M} UTC"


def _iso(seconds: float) -> str:
    return _moment(seconds).isoformat(timespec="seconds")


def lasting(seconds: float) -> str:
    """How long something takes, in words: `340 ms`, `12 s`, `5 min`, `3 h`, `2 days`."""
    for limit, size, unit in ((1, 0.001, " ms"), (120, 1, " s"), (7200, 60, " min"), (172_800, 3600, " h")):
        if seconds < limit:
            return f"{max(0, round(seconds / size))}{unit}"
    return f"{round(seconds / 86_400)} days"
