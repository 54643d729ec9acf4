"""The client's side of `styles.py`, in both styles: callbacks, and rounds by hand."""

from pathlib import Path
from typing import Any

from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    Root,
    TextContent,
)
from pydantic import FileUrl

from ekiden import Client, PendingCall


def said(ended: Any) -> str:
    assert isinstance(ended, CallToolResult)
    return "".join(block.text for block in ended.content if block.type == "text")


# The user


async def fill_in(params: ElicitRequestFormParams) -> ElicitResult:
    """Show `params.message` and a form made of `params.requested_schema`; here it is filled in already."""
    return ElicitResult(action="accept", content={"name": "Aiko"})


async def sign_up(target: Any, tool: str = "sign_up") -> str:
    async with Client(target, elicit=fill_in) as client:
        return said(await client.call_tool(tool))


async def sign_up_by_hand(target: Any, tool: str = "sign_up") -> str:
    async with Client(target, elicit=fill_in) as client:
        ended = await client.start_tool(tool)
        while isinstance(ended, PendingCall):
            answer = ElicitResult(action="accept", content={"name": "Aiko"})
            ended = await client.resume(ended, dict.fromkeys(ended.requests, answer))
        return said(ended)


# The model


async def think(params: CreateMessageRequestParams) -> CreateMessageResult:
    """Ask your model, after the user has agreed; here it is one that repeats what it was told."""
    (message,) = params.messages
    told = " ".join(block.text for block in message.content_as_list if block.type == "text")
    reply = TextContent(text=told.rpartition(": ")[2].upper())
    return CreateMessageResult(role="assistant", model="parrot", content=reply)


async def slogan(target: Any, tool: str = "slogan") -> str:
    async with Client(target, sample=think) as client:
        return said(await client.call_tool(tool, {"product": "tea"}))


async def slogan_by_hand(target: Any, tool: str = "slogan") -> str:
    async with Client(target, sample=think) as client:
        ended = await client.start_tool(tool, {"product": "tea"})
        while isinstance(ended, PendingCall):
            params = {key: request["params"] for key, request in ended.requests.items()}
            asked = {key: CreateMessageRequestParams.model_validate(value) for key, value in params.items()}
            ended = await client.resume(ended, {key: await think(value) for key, value in asked.items()})
        return said(ended)


# The roots


async def open_folders() -> list[Root]:
    """The folders that are open now; a list that never changes can be given as it is."""
    return [Root(uri=FileUrl(Path("/srv/tea").as_uri()), name="tea")]


async def where(target: Any, tool: str = "where") -> str:
    async with Client(target, roots=open_folders) as client:
        return said(await client.call_tool(tool))


async def where_by_hand(target: Any, tool: str = "where") -> str:
    async with Client(target, roots=open_folders) as client:
        ended = await client.start_tool(tool)
        while isinstance(ended, PendingCall):
            answer = {"roots": [{"uri": "file:///srv/tea", "name": "tea"}]}
            ended = await client.resume(ended, dict.fromkeys(ended.requests, answer))
        return said(ended)
