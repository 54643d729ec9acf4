"""What a server has, as the page lists it: each with the schema of its form."""

import asyncio
import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from ekiden.client.checking import dump
from ekiden.client.client import Client
from ekiden.errors import EkidenError
from ekiden.pages.trying.kinds import ClientKind
from ekiden.pages.trying.run import OpenClient, Target, TargetKind
from ekiden.wire.json import JsonObject, encode
from ekiden.wire.printable import harmless, one_line

__all__ = ["Catalog", "Item", "expanded", "read_catalog"]

_SECONDS: Final = 10.0
"""How long the lists of a server may take."""
_EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_HINTS: Final = {
    "readOnlyHint": "reads only",
    "destructiveHint": "may destroy",
    "idempotentHint": "may be repeated",
}


class Item(msgspec.Struct, frozen=True):
    """Something that can be called."""

    target: Target
    title: str
    about: str
    schema: JsonObject
    """Of the object that its form fills in."""
    hints: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Differs if its form does."""
        return hashlib.sha256(encode(self.schema)).hexdigest()[:16]


class Catalog(msgspec.Struct):
    """What a server has."""

    name: str = ""
    version: str = ""
    instructions: str = ""
    items: dict[TargetKind, list[Item]] = msgspec.field(default_factory=dict[TargetKind, list[Item]])
    problem: str | None = None
    """Why it could not be read."""

    def find(self, target: Target) -> Item | None:
        """The item of this kind and name."""
        return next((item for item in self.items.get(target.kind, ()) if item.target == target), None)

    @property
    def stamp(self) -> str:
        """Differs if the list does."""
        told = [
            (item.target.kind, item.target.name, item.title) for each in self.items.values() for item in each
        ]
        return hashlib.sha256(encode([self.name, self.version, *told])).hexdigest()[:16]

    @property
    def first(self) -> Item | None:
        """The item that is shown if none is chosen."""
        return next((item for items in self.items.values() for item in items), None)


async def read_catalog(open_client: OpenClient, kind: ClientKind) -> Catalog:
    """All that the server lists. If it cannot be reached, the catalog says why."""
    try:
        async with asyncio.timeout(_SECONDS), open_client(kind) as client:
            return await _read(client)
    except TimeoutError:
        return Catalog(problem=f"The server did not answer within {_SECONDS:g} seconds")
    except (EkidenError, OSError) as error:
        return Catalog(problem=harmless(error) or type(error).__name__)


async def _read(client: Client) -> Catalog:
    session = client.session
    told = session.capabilities
    tools = [_tool(dump(tool)) for tool in await client.list_tools()] if "tools" in told else []
    prompts = [_prompt(dump(prompt)) for prompt in await client.list_prompts()] if "prompts" in told else []
    resources, templates = list[Item](), list[Item]()
    if "resources" in told:
        resources = [_item("resource", dump(each), "uri") for each in await client.list_resources()]
        templates = [_template(dump(each)) for each in await client.list_resource_templates()]
    return Catalog(
        name=one_line(session.server_info.get("name", "")),
        version=one_line(session.server_info.get("version", "")),
        instructions=harmless(session.instructions or ""),
        items={"tool": tools, "prompt": prompts, "resource": resources, "template": templates},
    )


def _item(kind: TargetKind, told: JsonObject, key: str = "name", **more: Any) -> Item:
    name = str(told[key])
    hints: Mapping[str, Any] = told.get("annotations") or {}
    titled = told.get("title") or hints.get("title") or told.get("name") or name
    return Item(
        target=Target(kind, name),
        title=one_line(titled),
        about=harmless(told.get("description") or ""),
        schema=more.get("schema", {}),
        hints=tuple(words for hint, words in _HINTS.items() if hints.get(hint) is True),
    )


def _tool(told: JsonObject) -> Item:
    return _item("tool", told, schema=told.get("inputSchema") or {})


def _prompt(told: JsonObject) -> Item:
    arguments: list[JsonObject] = told.get("arguments") or []
    described: dict[str, JsonObject] = {
        str(each["name"]): {
            "type": "string",
            "title": each.get("title") or each["name"],
            "description": each.get("description") or "",
        }
        for each in arguments
    }
    required = [str(each["name"]) for each in arguments if each.get("required")]
    return _item("prompt", told, schema=_texts(described, required))


def _template(told: JsonObject) -> Item:
    expressions = _EXPRESSION.findall(str(told["uriTemplate"]))
    named = {name: operator for operator, body in expressions for name in _names(body)}
    required = [name for name, operator in named.items() if operator not in ("?", "&")]
    fields: dict[str, JsonObject] = {name: {"type": "string", "title": name} for name in named}
    return _item("template", told, "uriTemplate", schema=_texts(fields, required))


def _texts(properties: Mapping[str, JsonObject], required: list[str]) -> JsonObject:
    return {"type": "object", "properties": dict(properties), "required": required}


def _names(body: str) -> list[str]:
    return [part.partition(":")[0].rstrip("*").strip() for part in body.split(",") if part.strip()]


def expanded(template: str, values: Mapping[str, Any]) -> str:
    """The URI of a template (RFC 6570) with these texts; what has no value is left out."""

    def fill(found: re.Match[str]) -> str:
        operator = found[1]
        given = [(name, str(values[name])) for name in _names(found[2]) if name in values]
        if not given:
            return ""
        safe = "/:?#[]@!$&'()*+,;=~" if operator in ("+", "#") else "~"
        parts = [
            f"{name}={quote(text, safe=safe)}" if operator in ("?", "&", ";") else quote(text, safe=safe)
            for name, text in given
        ]
        joint = {"": ",", "+": ",", "#": ",", "?": "&"}.get(operator, operator)
        return ("" if operator in ("", "+") else operator) + joint.join(parts)

    return _EXPRESSION.sub(fill, template)
