"""Clients of both eras, the official one and ours, behind one face."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import mcp_types as types
from mcp.client import Client as OfficialClient

from ekiden import Client

ROOT = types.Root.model_validate({"uri": "file:///home/aiko"})
SAMPLED = types.CreateMessageResult.model_validate(
    {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Nara"}}
)


async def accepting(params: Any) -> types.ElicitResult:
    """Agree to every form."""
    return types.ElicitResult(action="accept", content={"ok": True})


class Caller(Protocol):
    """What the tests need of a client. Results are dicts of the wire."""

    asked: list[str]
    """The words of all forms that were shown."""
    told: list[str]
    """Log messages."""

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]: ...
    async def prompt(self, name: str, /, **arguments: str) -> dict[str, Any]: ...
    async def read(self, uri: str) -> dict[str, Any]: ...
    async def tools(self) -> dict[str, dict[str, Any]]: ...


def dumped(model: Any) -> dict[str, Any]:
    result: dict[str, Any] = model.model_dump(by_alias=True, mode="json", exclude_none=True)
    return result


class _Official:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.told: list[str] = []
        self.progress: list[float] = []
        self.client: Any = None

    async def on_elicit(self, context: Any, params: Any) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"ok": True})

    async def on_sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        return SAMPLED

    async def on_roots(self, context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[ROOT])

    async def on_log(self, params: Any) -> None:
        self.told.append(str(params.data))

    async def on_progress(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append(progress)

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        return dumped(await self.client.call_tool(name, arguments, progress_callback=self.on_progress))

    async def prompt(self, name: str, /, **arguments: str) -> dict[str, Any]:
        return dumped(await self.client.get_prompt(name, arguments))

    async def read(self, uri: str) -> dict[str, Any]:
        return dumped(await self.client.read_resource(uri))

    async def tools(self) -> dict[str, dict[str, Any]]:
        return {tool.name: dumped(tool) for tool in (await self.client.list_tools()).tools}


@asynccontextmanager
async def official(url: str, mode: Any) -> AsyncGenerator[_Official, None]:
    caller = _Official()
    client = OfficialClient(
        url,
        mode=mode,
        elicitation_callback=caller.on_elicit,
        sampling_callback=caller.on_sample,
        list_roots_callback=caller.on_roots,
        logging_callback=caller.on_log,
        log_level="info" if mode == "auto" else None,
    )
    async with client as caller.client:
        yield caller


class _Ours(_Official):
    async def elicit(self, params: Any) -> types.ElicitResult:
        return await self.on_elicit(None, params)

    async def sample(self, params: Any) -> types.CreateMessageResult:
        return SAMPLED

    async def roots(self) -> list[types.Root]:
        return [ROOT]

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        def on_progress(progress: float, *_: Any) -> None:
            self.progress.append(progress)

        return dumped(await self.client.call_tool(name, arguments, progress=on_progress))

    async def tools(self) -> dict[str, dict[str, Any]]:
        return {tool.name: dumped(tool) for tool in await self.client.list_tools()}


@asynccontextmanager
async def ours(url: str, mode: Any) -> AsyncGenerator[_Ours, None]:
    caller = _Ours()
    client = Client(
        url,
        mode=mode,
        elicit=caller.elicit,
        sample=caller.sample,
        roots=caller.roots,
        on_log=lambda params: caller.told.append(str(params["data"])),
        timeout=30.0,
    )
    async with client as caller.client:
        yield caller


CALLERS: dict[str, Callable[[str], AbstractAsyncContextManager[Any]]] = {
    "official-2026": lambda url: official(url, "auto"),
    "official-2025": lambda url: official(url, "legacy"),
    "ours-2026": lambda url: ours(url, "modern"),
    "ours-2025": lambda url: ours(url, "legacy"),
}
