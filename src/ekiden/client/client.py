"""`Client`: speaks to every server, answers what it asks, and drives calls of several rounds.

`async with Client(target) as client`, where the target is a URL, a command, a file, or a server in
this process. What a server asks is answered by the callbacks, and only what has a callback is declared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from pydantic import TypeAdapter, ValidationError

from ekiden.client import eras
from ekiden.client.answering import Answerer, Elicit, ElicitUrl, Roots, Sample
from ekiden.client.cache import ResultCache
from ekiden.client.calls import PendingCall, read_pending, respond
from ekiden.client.failures import CallTimeout, InvalidResult, ServerError
from ekiden.client.legacy import LegacySession
from ekiden.client.modern import ModernSession
from ekiden.client.session import Ask, EraChanged, Hooks, Session
from ekiden.client.target import ClientLimits, Target, connect, is_url, origin_of
from ekiden.client.tools import KnownTools
from ekiden.errors import TransportError, UsageError
from ekiden.transports.link import HttpRefused, Link
from ekiden.wire import versions
from ekiden.wire.json import is_array

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

_log = logging.getLogger("ekiden.client")

T = TypeVar("T")
Progress = Callable[[float, float | None, str | None], None]

_SAFE = frozenset(
    {"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"}
)
"""Requests that change nothing, whatever the server does: they are sent again when a connection drops."""


class Client:
    """A client of one server.

    `max_rounds` caps the interim results of a call, `timeout` its seconds; both can be set for each
    call. `mode` is `"auto"` (find out), `"modern"` or `"legacy"`. `auth` takes any `httpx2.Auth`.
    `experimental_protocol_version="2026-06-XX"` speaks that draft to servers which speak it too.
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
        auth: httpx2.Auth | None = None,
        http_client: httpx2.AsyncClient | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        mode: Literal["auto", "modern", "legacy"] = "auto",
        experimental_protocol_version: str | None = None,
        name: str = "ekiden",
        version: str = "0.1.0",
        max_rounds: int = 10,
        timeout: float | None = 300.0,
        log_level: str | None = None,
        on_log: Callable[[dict[str, Any]], None] | None = None,
        limits: ClientLimits | None = None,
    ) -> None:
        if experimental_protocol_version not in (None, versions.DRAFT):
            raise UsageError(f"the only experimental protocol version is {versions.DRAFT!r}")
        self._draft = experimental_protocol_version is not None
        self._target = target
        self._answerer = Answerer(
            elicit=elicit, elicit_url=elicit_url, sample=sample, sample_tools=sample_tools, roots=roots
        )
        self._connection: dict[str, Any] = {"auth": auth, "http_client": http_client, "env": env, "cwd": cwd}
        self._mode = mode
        self._info = {"name": name, "version": version}
        self._max_rounds = max_rounds
        self._timeout = timeout
        self._log_level = log_level if log_level is not None else ("info" if on_log is not None else None)
        self._on_log = on_log
        self._limits = limits or ClientLimits()
        self._link: Link | None = None
        self._session: Session | None = None
        self._cache = ResultCache()
        self._tools = KnownTools(mirrors=is_url(target))
        self._watchers: set[Callable[[dict[str, Any]], None]] = set()

    async def __aenter__(self) -> Client:
        await self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._disconnect()

    async def _connect(self) -> None:
        self._link = await connect(self._target, limits=self._limits, **self._connection)
        link = self._link
        try:
            self._session = await eras.find_session(
                lambda: ModernSession(
                    link, self._answerer.capabilities, self._info, log_level=self._log_level
                ),
                lambda: LegacySession(
                    link,
                    self._answerer,
                    self._info,
                    log_level=self._log_level,
                    on_notification=self._notified,
                    draft=self._draft,
                ),
                origin=origin_of(self._target),
                mode=self._mode,
                patient=is_url(self._target) or hasattr(self._target, "endpoint"),
                draft=self._draft,
            )
        except BaseException:
            await self._disconnect()
            raise

    async def _disconnect(self) -> None:
        session, link = self._session, self._link
        self._session = self._link = None
        if session is not None:
            await session.close()
        if link is not None:
            await link.close()

    # What the server is

    @property
    def session(self) -> Session:
        """The open session: its era, its version, the server's info, capabilities and instructions."""
        if self._session is None:
            raise UsageError("the client is not connected: use it in `async with Client(...) as client`")
        return self._session

    async def discover(self) -> DiscoverResult:
        """Who the server is and what it can do. For servers of 2025, as they said in the handshake."""
        from mcp_types import DiscoverResult

        if self.session.era == "modern":
            return _typed(DiscoverResult, await self._request(Ask("server/discover", {})))
        return DiscoverResult.model_validate(
            {
                "supportedVersions": [self.session.version],
                "capabilities": self.session.capabilities,
                "instructions": self.session.instructions,
            }
        )

    # Lists

    async def list_tools(self) -> list[Tool]:
        """All tools; those whose definition is invalid are left out, with a warning."""
        from mcp_types import Tool

        return [_typed(Tool, tool) for tool in self._tools.learn(await self._list("tools/list", "tools"))]

    async def list_prompts(self) -> list[Prompt]:
        """All prompts."""
        from mcp_types import Prompt

        return [_typed(Prompt, prompt) for prompt in await self._list("prompts/list", "prompts")]

    async def list_resources(self) -> list[Resource]:
        """All resources."""
        from mcp_types import Resource

        return [_typed(Resource, resource) for resource in await self._list("resources/list", "resources")]

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """All resource templates."""
        from mcp_types import ResourceTemplate

        listed = await self._list("resources/templates/list", "resourceTemplates")
        return [_typed(ResourceTemplate, template) for template in listed]

    async def _list(self, method: str, field: str) -> list[Any]:
        items: list[Any] = []
        cursor: str | None = None
        for _ in range(self._limits.pages):
            params = {} if cursor is None else {"cursor": cursor}
            result = await self._request(Ask(method, params))
            page = result.get(field)
            if not is_array(page):
                raise InvalidResult(f"The server's {method} result has no list of {field}")
            items.extend(page)
            following = result.get("nextCursor")
            if following is None:
                return items
            cursor = str(following)
        raise InvalidResult(f"The server's {method} does not end within {self._limits.pages} pages")

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
    ) -> T: ...
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        result_type: Any = None,
        progress: Progress | None = None,
        max_rounds: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  a deadline for all rounds, not for one await
        meta: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a tool to its end, answering what it asks.

        `result_type` reads `structuredContent` into that type; a tool that failed is then an exception.
        """
        from mcp_types import CallToolResult

        params = _params({"name": name, "arguments": dict(arguments or {})}, meta)
        result = await self._drive("tools/call", params, name, progress, max_rounds, timeout)
        self._tools.check(name, result)
        typed = _typed(CallToolResult, result)
        return typed if result_type is None else _read_structured(typed, result_type, name)

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

        params = {"name": name, "arguments": dict(arguments or {})}
        return _typed(
            GetPromptResult, await self._drive("prompts/get", params, name, None, max_rounds, timeout)
        )

    async def read_resource(
        self,
        uri: str,
        *,
        max_rounds: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> ReadResourceResult:
        """Read a resource, answering what it asks."""
        from mcp_types import ReadResourceResult

        result = await self._drive("resources/read", {"uri": uri}, uri, None, max_rounds, timeout)
        return _typed(ReadResourceResult, result)

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
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if arguments:
            params["context"] = {"arguments": dict(arguments)}
        return _typed(CompleteResult, await self._request(Ask("completion/complete", params))).completion

    # By hand

    async def start_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, *, progress: Progress | None = None
    ) -> CallToolResult | PendingCall:
        """Call a tool for one round: its result, or a call that waits for answers."""
        params = {"name": name, "arguments": dict(arguments or {})}
        ended: CallToolResult | PendingCall = await self._hand("tools/call", params, params, None, progress)
        return ended

    async def resume(
        self,
        pending: PendingCall,
        responses: Mapping[str, Any] | None = None,
        *,
        progress: Progress | None = None,
    ) -> CallToolResult | PendingCall:
        """One more round of a pending call, with the given responses, or those of the callbacks."""
        if responses is None:
            responses = await respond(pending, self._answerer, self._max_rounds)
        sent = pending.retry(responses)
        ended: CallToolResult | PendingCall = await self._hand(
            pending.method, pending.params, sent, pending, progress
        )
        return ended

    async def _hand(
        self,
        method: str,
        params: dict[str, Any],
        sent: dict[str, Any],
        before: PendingCall | None,
        progress: Progress | None,
    ) -> Any:
        from mcp_types import CallToolResult

        result = await self._round(method, sent, str(params["name"]), progress)
        if result.get("resultType") == "input_required":
            return read_pending(method, params, result, before)
        return _typed(CallToolResult, result)

    # Rounds

    async def _drive(
        self,
        method: str,
        params: dict[str, Any],
        name: str,
        progress: Progress | None,
        max_rounds: int | None,
        timeout: float | None,  # noqa: ASYNC109
    ) -> dict[str, Any]:
        seconds = self._timeout if timeout is None else timeout
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                return await self._rounds(method, params, name, progress, max_rounds or self._max_rounds)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise CallTimeout(f"{method} {name!r} did not end within {seconds} seconds") from None

    async def _rounds(
        self, method: str, params: dict[str, Any], name: str, progress: Progress | None, max_rounds: int
    ) -> dict[str, Any]:
        pending: PendingCall | None = None
        sent = params
        while True:
            result = await self._round(method, sent, name, progress)
            if result.get("resultType") != "input_required":
                return result
            pending = read_pending(method, params, result, pending)
            sent = pending.retry(await respond(pending, self._answerer, max_rounds))

    async def _round(
        self, method: str, params: dict[str, Any], name: str, progress: Progress | None
    ) -> dict[str, Any]:
        hooks = Hooks(
            progress=None if progress is None else _progress_hook(progress), notification=self._notified
        )
        headers: Mapping[str, str] = {}
        if method == "tools/call":
            headers = self._tools.headers(name, params.get("arguments") or {})
        try:
            return await self._request(Ask(method, params, name, headers, hooks))
        except ServerError as error:
            if error.code != -32020 or method != "tools/call":
                raise
        # The server mirrors arguments that we did not know of: look at its tools, and try once more.
        await self.list_tools()
        headers = self._tools.headers(name, params.get("arguments") or {})
        return await self._request(Ask(method, params, name, headers, hooks))

    # Requests

    async def _request(self, ask: Ask) -> dict[str, Any]:
        """Send a request: out of the cache, over the session, and again where that is safe."""
        retried = "inputResponses" in ask.params or "requestState" in ask.params
        if not retried and (kept := self._cache.get(ask.method, ask.params)) is not None:
            return kept
        if ask.hooks.notification is None:
            ask.hooks.notification = self._notified
        try:
            result = await self.session.request(ask)
        except EraChanged:
            await self._reconnect()
            result = await self.session.request(ask)
        except TransportError as error:
            if ask.method not in _SAFE or isinstance(error, HttpRefused):
                raise
            _log.debug("The connection dropped; %s is sent again", ask.method)
            result = await self.session.request(ask)
        if result.get("resultType", "complete") not in ("complete", "input_required"):
            raise InvalidResult(f"The server sent a result of an unknown type: {result['resultType']!r}")
        if not retried and result.get("resultType") != "input_required":
            self._cache.put(ask.method, ask.params, result)
        return result

    async def _reconnect(self) -> None:
        """The server speaks differently than before: find out anew how."""
        eras.forget(origin_of(self._target))
        await self._disconnect()
        await self._connect()

    def _notified(self, message: dict[str, Any]) -> None:
        self._cache.notified(message)
        if message.get("method") == "notifications/message" and self._on_log is not None:
            self._on_log(message.get("params") or {})
        for watch in tuple(self._watchers):
            watch(message)

    # Changes

    async def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: tuple[str, ...] = (),
        reconnect: bool = True,
    ) -> AsyncIterator[dict[str, Any]]:
        """The changes that the server tells of, as they come. A stream that is lost is opened again."""
        from ekiden.client.listening import changes

        wanted = {"toolsListChanged": tools, "promptsListChanged": prompts, "resourcesListChanged": resources}
        async for change in changes(
            self.session, wanted, uris, self._watchers, self._notified, reconnect=reconnect
        ):
            yield change


def _params(params: dict[str, Any], meta: Mapping[str, Any] | None) -> dict[str, Any]:
    return params if meta is None else {**params, "_meta": dict(meta)}


def _progress_hook(progress: Progress) -> Callable[[dict[str, Any]], None]:
    return lambda params: progress(params.get("progress", 0), params.get("total"), params.get("message"))


def _typed(model: type[T], value: Any) -> T:
    validate: Any = model
    try:
        typed: T = validate.model_validate(value, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidResult(f"The server's {model.__name__} is malformed: {where}: {first['msg']}") from None
    return typed


def _read_structured(result: CallToolResult, result_type: Any, name: str) -> Any:
    if result.is_error:
        text = " ".join(block.text for block in result.content if block.type == "text")
        raise InvalidResult(f"Tool {name!r} failed: {text}")
    try:
        return TypeAdapter(result_type).validate_python(result.structured_content)
    except ValidationError as error:
        raise InvalidResult(f"Tool {name!r} gave something else than {result_type}: {error}") from None
