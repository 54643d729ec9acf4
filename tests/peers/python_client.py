"""What the official Python client sees of a server. Run by the interpreter of `.peers/mcp`.

    python python_client.py http URL < plan
    python python_client.py stdio COMMAND ARGUMENT... < plan

The plan says which steps to take; what came of them is printed as one JSON object. Whatever the
plan does not provide for ends the script with a trace.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp.client.subscriptions import ResourceUpdated, Subscription, SubscriptionLost
from mcp_types import Implementation, PromptReference, ResourceTemplateReference
from pydantic import BaseModel

PATIENCE = 20.0
"""Seconds for anything that must come; the whole run takes two."""

Json = dict[str, Any]


class Inbox:
    """What callbacks were called with, and a way to wait for it."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._arrived = asyncio.Event()

    def put(self, item: Any) -> None:
        self.items.append(item)
        self._arrived.set()

    async def first(self, count: int) -> list[Any]:
        async with asyncio.timeout(PATIENCE):
            while len(self.items) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.items

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        given = {"progress": progress, "total": total, "message": message}
        self.put({name: value for name, value in given.items() if value is not None})

    async def on_log(self, params: BaseModel) -> None:
        self.put(dump(params))

    async def on_message(self, message: object) -> None:
        """Keep the errors that no call reports; notifications are seen elsewhere."""
        if isinstance(message, Exception):
            self.put(repr(message))


def dump(model: BaseModel) -> Json:
    """A model as it came: fields that the server did not send are absent."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def call(client: Client, step: Json) -> Json:
    return {
        "result": dump(await client.call_tool(step["name"], step.get("arguments"), meta=step.get("meta")))
    }


async def follow(client: Client, step: Json) -> Json:
    """Call a tool; when all its progress has come, make the call that lets it end."""
    inbox = Inbox()
    running = asyncio.create_task(client.call_tool(step["name"], progress_callback=inbox.on_progress))
    await inbox.first(step["progress"])
    await perform(client, step["then"])
    return {"result": dump(await running), "progress": inbox.items}


async def read(client: Client, step: Json) -> Json:
    return {"result": dump(await client.read_resource(step["uri"]))}


async def get(client: Client, step: Json) -> Json:
    return {"result": dump(await client.get_prompt(step["name"], step.get("arguments")))}


async def complete(client: Client, step: Json) -> Json:
    kind = PromptReference if step["ref"]["type"] == "ref/prompt" else ResourceTemplateReference
    reference = kind.model_validate(step["ref"])
    return {"result": dump(await client.complete(reference, step["argument"], step.get("context")))}


DO: dict[str, Callable[[Client, Json], Any]] = {
    "call": call,
    "follow": follow,
    "read": read,
    "get": get,
    "complete": complete,
}


async def perform(client: Client, step: Json) -> Json:
    try:
        outcome: Json = await DO[step["do"]](client, step)
    except MCPError as error:
        return {"error": dump(error.error)}
    return outcome


async def perform_all(client: Client, steps: dict[str, Json]) -> Json:
    return {name: await perform(client, step) for name, step in steps.items()}


async def list_pages(list_page: Callable[..., Any]) -> list[Json]:
    pages = [await list_page()]
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(await list_page(cursor=cursor))
    return [dump(page) for page in pages]


async def list_everything(client: Client) -> Json:
    return {
        "tools": await list_pages(client.list_tools),
        "prompts": await list_pages(client.list_prompts),
        "resources": await list_pages(client.list_resources),
        "resourceTemplates": await list_pages(client.list_resource_templates),
    }


async def perform_together(client: Client, steps: list[Json]) -> list[Json]:
    async with asyncio.timeout(PATIENCE):
        return list(await asyncio.gather(*(perform(client, step) for step in steps)))


async def abandon(client: Client, plan: Json) -> Json:
    """Cancel a call once it runs, and ask the server whether it noticed."""
    started = Inbox()
    call = asyncio.create_task(client.call_tool(plan["name"], progress_callback=started.on_progress))
    await started.first(1)
    call.cancel()
    ended = (await asyncio.gather(call, return_exceptions=True))[0]
    async with asyncio.timeout(PATIENCE):
        return {
            "cancelled": isinstance(ended, asyncio.CancelledError),
            "then": await perform(client, plan["then"]),
        }


async def next_event(subscription: Subscription) -> Json:
    async with asyncio.timeout(PATIENCE):
        event = await anext(subscription)
    uri = {"uri": event.uri} if isinstance(event, ResourceUpdated) else {}
    return {"kind": type(event).__name__, **uri}


async def end_of(subscription: Subscription) -> str:
    try:
        async with asyncio.timeout(PATIENCE):
            event = await anext(subscription, None)
    except SubscriptionLost:
        return "lost"
    return "graceful" if event is None else f"not ended, but {event}"


def listening(client: Client, wanted: Json) -> AbstractAsyncContextManager[Subscription]:
    return client.listen(
        tools_list_changed=wanted.get("toolsListChanged", False),
        prompts_list_changed=wanted.get("promptsListChanged", False),
        resources_list_changed=wanted.get("resourcesListChanged", False),
        resource_subscriptions=wanted.get("resourceSubscriptions", ()),
    )


async def watch(client: Client, plan: Json) -> Json:
    """Subscribe, cause changes, and leave."""
    async with listening(client, plan["filter"]) as subscription:
        return await changes(client, plan, subscription)


async def watch_to_the_end(client: Client, plan: Json) -> Json:
    """Subscribe, cause changes, look at what is different now, and stay until the server ends."""
    async with listening(client, plan["filter"]) as subscription:
        return {
            **await changes(client, plan, subscription),
            "lists": await list_everything(client),
            "after": await perform_all(client, plan["after"]),
            "end": await end_of(subscription),
        }


async def changes(client: Client, plan: Json, subscription: Subscription) -> Json:
    return {
        "honoured": dump(subscription.honored),
        "caused": await perform_all(client, plan["steps"]),
        "events": [await next_event(subscription) for _ in range(plan["events"])],
    }


async def observe(client: Client, plan: Json, logs: Inbox) -> Json:
    discovered = client.session.discover_result
    assert discovered is not None
    assert client.server_info is not None
    return {
        "protocolVersion": client.protocol_version,
        "discovered": dump(discovered),
        "serverInfo": dump(client.server_info),
        "capabilities": dump(client.server_capabilities),
        "instructions": client.instructions,
        "unlisted": await perform_all(client, plan["unlisted"]),
        "lists": await list_everything(client),
        "steps": await perform_all(client, plan["steps"]),
        "logs": await logs.first(plan["logs"]),
        "together": await perform_together(client, plan["together"]),
        "abandoned": await abandon(client, plan["abandon"]),
        "narrow": await watch(client, plan["narrow"]),
        "wide": await watch_to_the_end(client, plan["wide"]),
    }


async def main(transport: str, *target: str) -> Json:
    plan = json.load(sys.stdin)
    server = (
        target[0] if transport == "http" else StdioServerParameters(command=target[0], args=list(target[1:]))
    )
    logs, stray = Inbox(), Inbox()
    options: Json = {
        "client_info": Implementation(**plan["client"]),
        "read_timeout_seconds": PATIENCE,
        "message_handler": stray.on_message,
    }
    async with Client(server, mode=plan["version"], **options) as client:
        pinned = await perform(client, plan["pinned"])
    async with Client(server, logging_callback=logs.on_log, **options) as client:
        seen = await observe(client, plan, logs)
    return {"pinned": pinned, **seen, "stray": stray.items}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
