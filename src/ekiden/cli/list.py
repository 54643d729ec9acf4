"""`ekiden tools`, `prompts` and `resources`: lists of a server, as a table or as JSON."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal

from ekiden.cli.targets import TargetOptions, open_client
from ekiden.cli.terminal.results import rows_table
from ekiden.cli.terminal.screen import Screen, one_line
from ekiden.errors import MethodNotFound, ProtocolError
from ekiden.wire.json import JsonObject, is_array, is_object

if TYPE_CHECKING:
    from ekiden.client.client import Client

__all__ = ["show_list"]

What = Literal["tools", "prompts", "resources"]


def show_list(what: What, connection: TargetOptions, *, as_json: bool) -> None:
    """Show one of the lists."""
    screen = Screen()
    found = asyncio.run(_fetch(what, connection))
    if as_json:
        screen.json(found if what == "resources" else found[what])
        return
    if not any(found.values()):
        screen.note(f"The server has no {what}.")
        return
    columns, rows = _ROWS[what](found)
    screen.out.print(rows_table(columns, [[one_line(cell) for cell in row] for row in rows]))


async def _fetch(what: What, connection: TargetOptions) -> dict[str, list[JsonObject]]:
    async with open_client(connection) as client:
        if what == "tools":
            return {"tools": await _dumped(client.list_tools)}
        if what == "prompts":
            return {"prompts": await _dumped(client.list_prompts)}
        return await _fetch_resources(client)


async def _fetch_resources(client: "Client") -> dict[str, list[JsonObject]]:
    return {
        "resources": await _dumped(client.list_resources),
        "resourceTemplates": await _dumped(client.list_resource_templates),
    }


async def _dumped(fetch: Callable[[], Awaitable[list[Any]]]) -> list[JsonObject]:
    """A list as JSON objects; empty if the server does not know the method."""
    try:
        listed = await fetch()
    except ProtocolError as error:
        if error.code == MethodNotFound.default_code:
            return []
        raise
    return [item.model_dump(mode="json", by_alias=True, exclude_unset=True) for item in listed]


Rows = tuple[list[str], list[list[Any]]]


def _tool_rows(found: dict[str, list[JsonObject]]) -> Rows:
    rows = [[tool["name"], _signature(tool["inputSchema"]), _about(tool)] for tool in found["tools"]]
    return ["Tool", "Arguments", "What it does"], rows


def _signature(schema: JsonObject) -> str:
    """The arguments as they are written in a call; those in brackets may be left out."""
    required = {name for name in schema.get("required", ()) if isinstance(name, str)}
    properties: JsonObject = schema.get("properties") or {}
    words = [f"{name}={_kind(about)}" for name, about in properties.items()]
    return " ".join(
        word if name in required else f"[{word}]" for name, word in zip(properties, words, strict=True)
    )


def _kind(schema: Any) -> str:
    if not is_object(schema):
        return "any"
    named: Any = schema.get("type") or [_kind(branch) for branch in schema.get("anyOf", ())]
    kinds: list[Any] = named if is_array(named) else [named]
    return "|".join(map(str, kinds)) or "any"


def _prompt_rows(found: dict[str, list[JsonObject]]) -> Rows:
    rows: list[list[Any]] = []
    for prompt in found["prompts"]:
        arguments: list[JsonObject] = prompt.get("arguments") or []
        words = [
            argument["name"] if argument.get("required") else f"[{argument['name']}]"
            for argument in arguments
        ]
        rows.append([prompt["name"], " ".join(words), _about(prompt)])
    return ["Prompt", "Arguments", "What it is"], rows


def _resource_rows(found: dict[str, list[JsonObject]]) -> Rows:
    listed = [*found["resources"], *found["resourceTemplates"]]
    rows = [
        [item.get("uri") or item.get("uriTemplate"), item.get("mimeType", ""), _about(item)]
        for item in listed
    ]
    return ["Resource", "Type", "What it is"], rows


def _about(item: JsonObject) -> str:
    """The first paragraph of the description, or else the title."""
    text = str(item.get("description") or item.get("title") or "")
    return " ".join(text.strip().partition("\n\n")[0].split())


_ROWS: dict[str, Callable[[dict[str, list[JsonObject]]], Rows]] = {
    "tools": _tool_rows,
    "prompts": _prompt_rows,
    "resources": _resource_rows,
}
