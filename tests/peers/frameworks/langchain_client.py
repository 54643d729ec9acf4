"""The tools that the LangChain adapters make out of a server's, invoked as an agent invokes them."""

from typing import Any

import steps
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from mcp.types import CreateMessageResult, ElicitResult, ListRootsResult, Root, TextContent
from pydantic import FileUrl


async def elicit(context: Any, params: Any, callback_context: Any) -> ElicitResult:
    if getattr(params, "mode", "form") == "url":
        return ElicitResult(action="accept")
    return ElicitResult(action="accept", content={"name": "Mio", "nights": 2})


async def sample(context: Any, params: Any) -> CreateMessageResult:
    words = TextContent(type="text", text="old pond")
    return CreateMessageResult(role="assistant", model="m", content=words)


async def list_roots(context: Any) -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///inn"))])


async def connect(url: str, full: bool) -> dict[str, Any]:
    inn: dict[str, Any] = {"transport": "streamable_http", "url": url}
    if full:  # The adapters know elicitation; what the official session knows besides can be passed on to it.
        inn["session_kwargs"] = {"sampling_callback": sample, "list_roots_callback": list_roots}
    callbacks = Callbacks(on_elicitation=elicit) if full else None
    client = MultiServerMCPClient({"inn": inn}, callbacks=callbacks)
    tools = {tool.name: tool for tool in await client.get_tools()}

    async def call(name: str, arguments: dict[str, Any]) -> Any:
        blocks = await tools[name].ainvoke(arguments)
        return [block["text"] for block in blocks]

    return await steps.take(call)


if __name__ == "__main__":
    steps.run(connect)
