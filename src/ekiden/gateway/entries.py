"""What an upstream lists, as entries of our own catalogs.

Definitions pass as they are, without `execution`, which says how the upstream runs tasks. Those that are
malformed or too large are left out.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ValidationError

from ekiden.rounds.outcome import Complete, Outcome, Task
from ekiden.server.context import Context
from ekiden.server.handlers import Handler
from ekiden.server.middleware import Run
from ekiden.server.registration.prompts import Prompt
from ekiden.server.registration.resources import Resource
from ekiden.server.registration.tools import Tool
from ekiden.transports.client.complaints import Complaints
from ekiden.wire.headers import find_mirrored_params
from ekiden.wire.json import JsonObject, encode, is_object

__all__ = ["ForwardedPrompt", "ForwardedResource", "ForwardedTool", "Forwarding", "Unlisted", "definitions"]

_LONGEST: Final = 2048
"""Characters of a name or a URI: longer ones are in no header, and of no use."""
_MOST_BYTES: Final = 4 * 1024 * 1024
"""The size of one upstream's list. All lists together are one result."""
_MOST_BYTES_OF_ONE: Final = 256 * 1024
"""The size of one definition: while it is checked, everybody waits."""
_MOST: Final = 2000
"""Entries of a list that are looked at. To take one in costs about a tenth of a millisecond of the loop."""
_AT_ONCE: Final = 50
"""Entries that are looked at before others have their turn."""

Call: TypeAlias = Callable[[Context[Any]], Coroutine[Any, Any, Any]]


class Forwarding:
    """How the calls of one upstream are answered."""

    def __init__(self, call: Call, *, parked: bool, completes: Run) -> None:
        self.completes = completes
        self._call = call
        self._resume = "parked" if parked else "replay"

    def handler(self, title: str) -> Handler:
        """A handler whose only argument is its context."""
        options: dict[str, Any] = {"once": False, "resume": self._resume, "title": title}
        return Handler(functools.partial(_forward, self._call), "ctx", **options)


async def _forward(call: Call, ctx: Context[Any]) -> Any:
    return await call(ctx)


def _bind_nothing(arguments: Mapping[str, object]) -> dict[str, Any]:
    """The upstream checks arguments; the forwarding handler takes them from the request."""
    return {}


class _Anything:
    """The parameters of a forwarded call: the upstream checks them."""

    def bind_text(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """No arguments: what was sent is in the request."""
        return {}


class ForwardedTool(Tool):
    """A tool of an upstream."""

    def __init__(self, definition: JsonObject, forwarding: Forwarding) -> None:
        self.key = definition["name"]
        self.title = f"Tool {self.key!r}"
        # What 2025-11-25 says of tasks concerns only those who call the upstream itself.
        self.definition = {name: value for name, value in definition.items() if name != "execution"}
        self.handler = forwarding.handler(self.title)
        self.scopes = self.handler.scopes
        self.on_cancel = None
        self.tells_in_words = False
        self.mirrored = find_mirrored_params(definition["inputSchema"])
        self.bind = _bind_nothing

    def complete(self, value: object) -> Outcome:
        """The upstream's result as it is; that it has become a task, as a task of ours."""
        if isinstance(value, Task):
            return value
        assert isinstance(value, dict)
        return Complete(value)  # pyright: ignore[reportUnknownArgumentType]  a result of the upstream


class ForwardedPrompt(Prompt):
    """A prompt of an upstream."""

    def __init__(self, definition: JsonObject, forwarding: Forwarding) -> None:
        self.key = definition["name"]
        self.definition = definition
        self.handler = forwarding.handler(f"Prompt {self.key!r}")
        self.scopes = self.handler.scopes
        self.parameters = _Anything()  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]  binds nothing
        self.completes = forwarding.completes

    def result(self, value: object) -> JsonObject:
        """The upstream's result as it is."""
        return value  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  the handler gives no other


class ForwardedResource(Resource):
    """A resource or a template of an upstream."""

    def __init__(self, definition: JsonObject, forwarding: Forwarding) -> None:
        is_template = "uriTemplate" in definition
        self.key = definition["uriTemplate" if is_template else "uri"]
        self.definition = definition
        self.handler = forwarding.handler(f"Resource {self.key!r}")
        self.scopes = self.handler.scopes
        self.parameters = _Anything()  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]  binds nothing
        self.template = _Beginning(self.key) if is_template else None
        self.completes = forwarding.completes

    def result(self, value: object, uri: str) -> JsonObject:
        """The upstream's result as it is, with the hints about caching that servers of 2025 do not give."""
        assert isinstance(value, dict)
        return {"ttlMs": 0, "cacheScope": "private", **value}  # pyright: ignore[reportUnknownVariableType]


class Unlisted(ForwardedResource):
    """All URIs that the upstream does not list: it may have them nevertheless."""

    def __init__(self, forwarding: Forwarding) -> None:
        super().__init__({"uriTemplate": "", "name": ""}, forwarding)


class _Beginning:
    """Matches what begins like a template: the upstream knows its own templates better."""

    def __init__(self, template: str) -> None:
        self._beginning = template.partition("{")[0]

    def match(self, uri: str) -> dict[str, str] | None:
        """Implements `Matches`."""
        return {} if uri.startswith(self._beginning) else None


async def definitions(what: str, listed: list[Any], complain: Complaints) -> list[JsonObject]:
    """The definitions of a list that can be used, by name; the others are left out with a warning.

    Clients refuse a list with one malformed entry, and would lose what other upstreams list.
    """
    key, model = _models()[what]
    usable: dict[str, JsonObject] = {}
    size = 0
    if len(listed) > _MOST:
        complain("it lists %d %s: only the first %d are taken", len(listed), what, _MOST)
    for number, definition in enumerate(listed[:_MOST], 1):
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
        name = definition.get(key) if is_object(definition) else None
        problem = "it has no name that can be used"
        if isinstance(name, str) and 0 < len(name) <= _LONGEST:
            problem, length = _problem(model, definition)
            size += length
            if not problem and name in usable:
                problem = "there is another one of that name"
            elif not problem and size > _MOST_BYTES:
                problem = f"those before it have {_MOST_BYTES} bytes"
        if problem:
            complain("one of its %s is left out: '%s': %s", what, str(name)[:100], problem)
        else:
            usable[str(name)] = definition
    return list(usable.values())


@functools.cache
def _models() -> dict[str, tuple[str, type[BaseModel]]]:
    """The key and the official model of the entries of each list."""
    from mcp_types import Prompt, Resource, ResourceTemplate, Tool

    return {
        "tools": ("name", Tool),
        "prompts": ("name", Prompt),
        "resources": ("uri", Resource),
        "resourceTemplates": ("uriTemplate", ResourceTemplate),
    }


def _problem(model: type[BaseModel], definition: JsonObject) -> tuple[str, int]:
    """What is wrong with a definition, or an empty text; and its size in bytes."""
    spelled = encode(definition)
    if len(spelled) > _MOST_BYTES_OF_ONE:
        return f"it has more than {_MOST_BYTES_OF_ONE} bytes", 0
    try:
        model.model_validate_json(spelled, strict=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}", len(spelled)
    if (schema := definition.get("inputSchema")) is not None and schema.get("type") != "object":
        return "inputSchema.type: it must be 'object'", len(spelled)
    return "", len(spelled)
