"""`Client`: calls tools, prompts and resources of any server, and answers what they ask.

`async with Client(target) as client`, where the target is a URL, a command, a file, or a server in
this process. The callbacks answer what a server asks; only what has a callback is declared as a capability.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ekiden.client.answering import Answerer, Elicit, ElicitUrl, Roots, Sample
from ekiden.client.by_hand import ByHand
from ekiden.client.calls import (
    CallDriver,
    ClientCall,
    Progress,
    prompt_call,
    resource_call,
    tool_call,
    within,
)
from ekiden.client.connection import ServerConnection
from ekiden.client.extensions.enabled import EnabledExtensions
from ekiden.client.extensions.extension import ClientExtension
from ekiden.client.lists import read_list
from ekiden.client.results import read_structured, typed
from ekiden.client.sessions.session import ClientRequest, ClientSession
from ekiden.client.skills.reading import SkillReader
from ekiden.client.target import ClientLimits, LinkOptions, Target, is_command, is_url
from ekiden.client.tasks.handle import TaskHandle, TaskSnapshot, read_handle
from ekiden.client.tools import KnownTools
from ekiden.errors import CallTimeout, UsageError
from ekiden.telemetry.calls import traced_call
from ekiden.telemetry.context import is_tracing
from ekiden.version import __version__
from ekiden.wire import versions
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:
    import httpx2
    from mcp_types import (
        CallToolResult,
        Completion,
        DiscoverResult,
        GetPromptResult,
        Prompt,
        ReadResourceResult,
        Resource,
        ResourceTemplate,
        Tool,
    )

__all__ = ["Client"]

T = TypeVar("T")

_TIME_IS_UP = (asyncio.CancelledError, TimeoutError, CallTimeout)


class Client(ByHand, SkillReader):
    """A client of one server.

    `max_rounds` limits the interim results of a call, `timeout` the seconds of every method; both can be set
    for each call. `start_timeout` is for a server that this client starts, until it answers: the first run
    of `npx` or `uvx` downloads it. `mode` is `"auto"` (find out), `"modern"` or `"legacy"`; `auth` is any
    `httpx2.Auth`.
    `tasks=False` does not declare tasks: no call becomes one. `experimental_protocol_version="2026-06-XX"`
    speaks that draft with servers that have it. `extensions` add to the protocol.
    """

    def __init__(
        self,
        target: Target,
        *,
        elicit: Elicit | None = None,
        elicit_url: ElicitUrl | None = None,
        sample: Sample | None = None,
        sample_tools: bool = False,
        roots: Roots | None = None,
        tasks: bool = True,
        auth: httpx2.Auth | None = None,
        http_client: httpx2.AsyncClient | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        mode: Literal["auto", "modern", "legacy"] = "auto",
        experimental_protocol_version: str | None = None,
        name: str = "ekiden",
        version: str = __version__,
        max_rounds: int = 10,
        timeout: float | None = 300.0,
        start_timeout: float | None = 300.0,
        log_level: str | None = None,
        on_log: Callable[[JsonObject], None] | None = None,
        limits: ClientLimits | None = None,
        extensions: Sequence[ClientExtension] = (),
    ) -> None:
        if experimental_protocol_version not in (None, versions.DRAFT):
            raise UsageError(f"the only experimental protocol version is {versions.DRAFT!r}")
        self._answerer = Answerer(
            elicit=elicit, elicit_url=elicit_url, sample=sample, sample_tools=sample_tools, roots=roots
        )
        self._max_rounds = max_rounds
        self._timeout = timeout
        self._start_timeout = start_timeout if is_command(target) else timeout
        self._limits = limits or ClientLimits()
        enabled = EnabledExtensions(extensions, tasks=tasks)
        self._living = enabled.living
        self._alive: AbstractAsyncContextManager[None] | None = None
        self._connection = ServerConnection(
            target,
            self._answerer,
            info={"name": name, "version": version},
            mode=mode,
            draft=experimental_protocol_version is not None,
            log_level=log_level if log_level is not None else ("info" if on_log is not None else None),
            on_log=on_log,
            options=LinkOptions(limits=self._limits, auth=auth, http_client=http_client, env=env, cwd=cwd),
            extensions=enabled,
        )
        self._tools = KnownTools(mirrors=is_url(target))
        self._driver = CallDriver(
            self._connection,
            self._answerer,
            self._tools,
            learn_tools=self.list_tools,
            limits=self._limits,
            timeout=timeout,
            extensions=enabled,
        )

    async def __aenter__(self) -> Client:
        alive = self._living()
        await alive.__aenter__()
        try:
            async with within(self._start_timeout, "Connecting"):
                await self._connection.open()
        except BaseException as error:
            await alive.__aexit__(type(error), error, error.__traceback__)
            raise
        self._alive = alive
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        alive, self._alive = self._alive, None
        try:
            await self._connection.close(hurry=isinstance(error, _TIME_IS_UP))
        finally:
            if alive is not None:
                await alive.__aexit__(kind, error, trace)

    # About the server

    @property
    def session(self) -> ClientSession:
        """The open session: its era, its version, the server's info, capabilities and instructions."""
        return self._connection.session

    async def discover(self) -> DiscoverResult:
        """The server's versions, capabilities and instructions. Those of 2025 told them in the handshake."""
        from mcp_types import DiscoverResult

        if self.session.era == "modern":
            return typed(DiscoverResult, await self._request(ClientRequest("server/discover", {})))
        told = {"capabilities": self.session.capabilities, "instructions": self.session.instructions}
        return typed(DiscoverResult, {"supportedVersions": [self.session.version], **told})

    # Lists

    async def list_tools(self) -> list[Tool]:
        """All tools; those whose definition is invalid are left out, with a warning."""
        from mcp_types import Tool

        return [typed(Tool, tool) for tool in self._tools.learn(await self._list("tools/list", "tools"))]

    async def list_prompts(self) -> list[Prompt]:
        """All prompts."""
        from mcp_types import Prompt

        return [typed(Prompt, prompt) for prompt in await self._list("prompts/list", "prompts")]

    async def list_resources(self) -> list[Resource]:
        """All resources."""
        from mcp_types import Resource

        return [typed(Resource, resource) for resource in await self._list("resources/list", "resources")]

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """All resource templates."""
        from mcp_types import ResourceTemplate

        listed = await self._list("resources/templates/list", "resourceTemplates")
        return [typed(ResourceTemplate, template) for template in listed]

    async def _list(self, method: str, field: str, params: JsonObject | None = None) -> list[Any]:
        async with within(self._timeout, method):
            return await read_list(self._connection.request, method, field, self._limits, params)

    async def _request(self, request: ClientRequest) -> JsonObject:
        async with within(self._timeout, request.method):
            return await self._connection.request(request)

    async def _notify(self, method: str, params: JsonObject) -> None:
        async with within(self._timeout, method):
            await self.session.notify(method, params)

    # Calls

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        progress: Progress | None = None,
        max_rounds: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        meta: Mapping[str, Any] | None = None,
        on_status: Callable[[TaskSnapshot], None] | None = None,
    ) -> CallToolResult: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        result_type: type[T],
        progress: Progress | None = None,
        max_rounds: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        meta: Mapping[str, Any] | None = None,
        on_status: Callable[[TaskSnapshot], None] | None = None,
    ) -> T: ...
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        result_type: type[T] | None = None,
        progress: Progress | None = None,
        max_rounds: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  a deadline for all rounds, not for one await
        meta: Mapping[str, Any] | None = None,
        on_status: Callable[[TaskSnapshot], None] | None = None,
    ) -> CallToolResult | T:
        """Call a tool to its end, answering what it asks; also where it becomes a task.

        `result_type` reads `structuredContent` into that type; a tool that failed is then an exception.
        `on_status` is called with every new state of a task. If this call is cancelled, so is the task.
        """
        from mcp_types import CallToolResult

        call = tool_call(name, arguments, meta, progress)
        result = typed(CallToolResult, await self._drive(call, max_rounds, timeout, on_status))
        return result if result_type is None else read_structured(result, result_type, name)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        max_rounds: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> GetPromptResult:
        """Get a prompt, answering what it asks."""
        from mcp_types import GetPromptResult

        return typed(GetPromptResult, await self._drive(prompt_call(name, arguments), max_rounds, timeout))

    async def read_resource(
        self,
        uri: str,
        *,
        max_rounds: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> ReadResourceResult:
        """Read a resource, answering what it asks."""
        from mcp_types import ReadResourceResult

        return typed(ReadResourceResult, await self._drive(resource_call(uri), max_rounds, timeout))

    async def _read_fresh(self, uri: str) -> ReadResourceResult:
        self._connection.forget(uri)
        return await self.read_resource(uri)

    async def _drive(
        self,
        call: ClientCall,
        max_rounds: int | None,
        timeout: float | None,  # noqa: ASYNC109
        on_status: Callable[[TaskSnapshot], None] | None = None,
    ) -> JsonObject:
        if is_tracing():
            return await traced_call(
                call.method, call.name, lambda: self._to_end(call, max_rounds, timeout, on_status)
            )
        return await self._to_end(call, max_rounds, timeout, on_status)

    async def _to_end(
        self,
        call: ClientCall,
        max_rounds: int | None,
        timeout: float | None,  # noqa: ASYNC109
        on_status: Callable[[TaskSnapshot], None] | None,
    ) -> JsonObject:
        seconds = self._timeout if timeout is None else timeout
        async with within(seconds, f"{call.method} {call.name!r}") as deadline:
            ended = await self._driver.drive(call, self._max_rounds if max_rounds is None else max_rounds)
            if not isinstance(ended, TaskHandle):
                return ended
            if timeout is None:
                deadline.reschedule(None)  # It became a task because it takes longer than a request.
            result = await ended.drive(on_status)
            self._tools.check(call.name, result)
            return result

    async def complete(
        self,
        *,
        argument: str,
        value: str,
        prompt: str | None = None,
        resource: str | None = None,
        arguments: Mapping[str, str] | None = None,
    ) -> Completion:
        """Suggestions for an argument of a prompt or resource template."""
        from mcp_types import CompleteResult

        if (prompt is None) == (resource is None):
            raise UsageError("complete() needs either prompt= or resource=")
        ref = {"type": "ref/prompt", "name": prompt} if prompt else {"type": "ref/resource", "uri": resource}
        params: JsonObject = {"ref": ref, "argument": {"name": argument, "value": value}}
        if arguments:
            params["context"] = {"arguments": dict(arguments)}
        return typed(
            CompleteResult, await self._request(ClientRequest("completion/complete", params))
        ).completion

    # Tasks

    def task(self, handle: str) -> TaskHandle:
        """A handle for a task that exists already: by its id, or by what `TaskHandle.to_json` wrote."""
        return self._driver.handle(*read_handle(handle))

    # Changes

    async def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: tuple[str, ...] = (),
        reconnect: bool = True,
    ) -> AsyncGenerator[JsonObject, None]:
        """Notifications of changes, as they come. With `reconnect`, a lost stream is opened again."""
        from ekiden.client.listening import changes

        wanted = {"toolsListChanged": tools, "promptsListChanged": prompts, "resourcesListChanged": resources}
        async with aclosing(changes(self._connection, wanted, uris, reconnect=reconnect)) as stream:
            async for change in stream:
                yield change
