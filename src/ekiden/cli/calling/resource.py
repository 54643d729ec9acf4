"""`ekiden read`: read one resource, and show its contents."""

import difflib
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from ekiden.cli.calling.conversation import AskedOptions, Conversation, converse
from ekiden.cli.calling.names import listed, no_such
from ekiden.cli.calling.rounds import Rounds
from ekiden.cli.terminal.results import show_block
from ekiden.cli.terminal.screen import Screen, one_line
from ekiden.errors import InvalidParams, ServerError
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:
    from mcp_types import ReadResourceResult

    from ekiden.client.client import Client

__all__ = ["read"]

_EXPRESSION: Final = re.compile(r"\{[^{}]*+\}")
_NOT_FOUND: Final = (InvalidParams.default_code, -32002)
"""How servers say that there is no such resource: of 2026, and before."""


def read(options: AskedOptions, uri: str) -> None:
    """Read a resource and show it."""
    screen = Screen()

    async def work(with_: Conversation) -> "ReadResourceResult":
        try:
            return await Rounds(options, with_).drive(
                lambda: with_.client.start_resource(uri), with_.client.resume_resource
            )
        except ServerError as error:
            if error.code in _NOT_FOUND:
                await _suggest(with_.client, uri)
            raise

    got = converse(options, screen, work)
    raw = got.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if options.json:
        screen.json(raw)
    else:
        _show(screen, raw["contents"], uri, options)


async def _suggest(client: "Client", uri: str) -> None:
    """Raise an error that names the resource which was probably meant, if one looks like it.

    A URI that fits a template was meant as it is: the server just has nothing there.
    """
    uris = [str(resource.uri) for resource in await listed(client.list_resources)]
    templates = [template.uri_template for template in await listed(client.list_resource_templates)]
    if any(_fits(uri, template) for template in templates):
        return
    uris += templates
    if uri not in uris and difflib.get_close_matches(uri, uris, 1):
        raise no_such("resource", uri, uris)


def _fits(uri: str, template: str) -> bool:
    """Whether the URI may be one of the template: then it is its value that the server does not know."""
    first, *others = _EXPRESSION.split(template)
    if not others:
        return uri == template
    # Not as a regular expression: a hostile template would take for ever.
    *between, last = others
    at, end = len(first), len(uri) - len(last)
    if not uri.startswith(first) or not uri.endswith(last):
        return False
    for literal in between:
        at = uri.find(literal, at, end) + len(literal)
        if at < len(literal):
            return False
    return at <= end


def _show(screen: Screen, contents: list[JsonObject], uri: str, options: AskedOptions) -> None:
    """One part as it is; several, each after its URI."""
    for part in contents:
        if len(contents) > 1:
            screen.text(f"{one_line(part.get('uri'))}:")
        name = _stem(str(part.get("uri", uri)))
        show_block(screen, {"type": "resource", "resource": part}, name, options.save_to)


def _stem(uri: str) -> str:
    """A name for a file with this resource: the last part of its URI, without an ending."""
    try:
        parts = urlsplit(uri)
    except ValueError:  # Servers may send anything.
        return "resource"
    last = parts.path.rstrip("/").rpartition("/")[2] or parts.netloc
    return last.partition(".")[0] or "resource"
