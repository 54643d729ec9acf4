"""The templates of the look. What is put into one is escaped, and a name that is missing is an error."""

import functools
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ekiden.errors import UsageError
from ekiden.pages.web.static import asset

try:
    from jinja2 import Environment, PackageLoader, StrictUndefined
except ImportError as error:
    raise UsageError(f"pages need `pip install ekiden[pages]` ({error})") from error

__all__ = ["render"]

_WIDE: Final = 60
"""Characters of JSON that stand on one line."""
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
_BREAKS: Final = re.compile(r"(?<=[_./:@-])(?=\w)")
"""After what a long name may be broken."""


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
    own.filters.update(
        when=_when, precisely=_precisely, iso=_iso, lasting=lasting, pretty=_pretty, pieces=_pieces
    )
    return environment


def render(name: str, values: Mapping[str, Any]) -> str:
    """A template with its values."""
    return _environment().get_template(name).render(values)


def _moment(seconds: float) -> datetime:
    """A time; one that no calendar has is the last day of the calendar: a client may wish for any `ttl`."""
    return datetime.fromtimestamp(min(max(seconds, 0.0), _LATEST), UTC)


def _when(seconds: float) -> str:
    """`17 Nov 2026, 21:04 UTC`."""
    moment = _moment(seconds)
    return f"{moment.day} {moment:%b %Y, %H:%M} UTC"


def _precisely(seconds: float) -> str:
    """`17 Nov 2026, 21:04:09 UTC`."""
    moment = _moment(seconds)
    return f"{moment.day} {moment:%b %Y, %H:%M:%S} UTC"


def _pretty(text: str) -> str:
    """JSON with a line for each member, if it is long; other texts as they are."""
    if len(text) <= _WIDE:
        return text
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.MsgspecError:
        return text


def _pieces(name: str) -> list[str]:
    """The parts of a name, between which it may be broken, rather than anywhere."""
    return _BREAKS.split(name)


def _iso(seconds: float) -> str:
    return _moment(seconds).isoformat(timespec="seconds")


def lasting(seconds: float) -> str:
    """How long something takes, in words: `340 ms`, `12 s`, `5 min`, `3 h`, `2 days`."""
    for limit, size, unit in ((1, 0.001, " ms"), (120, 1, " s"), (7200, 60, " min"), (172_800, 3600, " h")):
        if seconds < limit:
            return f"{max(0, round(seconds / size))}{unit}"
    return f"{round(min(seconds, _LATEST) / 86_400)} days"
