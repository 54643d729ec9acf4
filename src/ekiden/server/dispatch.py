"""From a request to its outcome: find the handler, check what it needs, call it, report how it ended.

Errors follow one table. What the caller of a tool can correct is an `isError` result. A wrong request
is a JSON-RPC error. A mistake of the author is logged with its traceback; the client gets no details.
"""

import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import msgspec

from ekiden.errors import (
    ArgumentsInvalid,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MissingCapability,
    ProtocolError,
    StoreUnavailable,
    UsageError,
)
from ekiden.rounds.asks import declares
from ekiden.rounds.outcome import Complete, Failed, Outcome
from ekiden.server.handlers import Handler
from ekiden.server.legacy.sessions import session_answers
from ekiden.server.questions.input_required import InputRequired
from ekiden.server.registration.catalog import Catalog
from ekiden.server.registration.completions import completion_result, read_reference
from ekiden.server.registration.registry import Registry
from ekiden.server.registration.resources import Resource
from ekiden.server.registration.results import (
    Ending,
    PlainEnding,
    ToolEnding,
    ends_more_than_a_call,
    tool_error,
    tool_failure,
)
from ekiden.server.registration.signatures import HintedParameters
from ekiden.server.rounds.call import Call, Given
from ekiden.server.rounds.rounds import Rounds
from ekiden.server.subscriptions import read_filter
from ekiden.server.tasks.methods import TaskMethods
from ekiden.transports.server.port import Ready, Stream
from ekiden.wire import versions
from ekiden.wire.headers import check_mirrored_params
from ekiden.wire.json import JsonObject
from ekiden.wire.meta import SUBSCRIPTION_ID
from ekiden.wire.modern import Request

__all__ = ["Answer", "Dispatcher"]

_log = logging.getLogger(__name__)

Answer: TypeAlias = Callable[[Request, Stream], Awaitable[Outcome]]


class Dispatcher:
    """Answers every method of the protocol out of a registry."""

    def __init__(self, registry: Registry, rounds: Rounds) -> None:
        self._registry = registry
        self._rounds = rounds
        self.ready: dict[str, Callable[[Request], Ready]] = {
            "server/discover": self._discover,
            "tools/list": self._lister(registry.tools),
            "prompts/list": self._lister(registry.prompts),
            "resources/list": self._lister(registry.resources),
            "resources/templates/list": self._lister(registry.templates),
        }
        """The methods that never wait: their answers are kept as bytes."""
        self._answers: dict[str, Answer] = {
            "tools/call": self._call_tool,
            "prompts/get": self._get_prompt,
            "resources/read": self._read_resource,
            "completion/complete": self._complete,
            "subscriptions/listen": self._listen,
            **session_answers,
            **({} if (tasks := rounds.task_methods) is None else _task_methods(tasks)),
            **{method: _as_answer(ready) for method, ready in self.ready.items()},
        }
        self.state: object = None
        """What the lifespan yielded."""

    async def answer(self, request: Request, stream: Stream) -> Outcome:
        """Answer a request whose method is known. Raises only what `ends_more_than_a_call`."""
        try:
            return await self._answers[request.method](request, stream)
        except ProtocolError as error:
            return Failed(error)
        except StoreUnavailable as error:
            _log.error("%s %s: %s", request.method, request.name or "", error)
            return Failed(InternalError("The server's store is not available right now: try again later"))
        except BaseException as error:
            if ends_more_than_a_call(error):
                raise
            _log.exception("%s %s failed", request.method, request.name or "")
            return Failed(InternalError("Internal error"))

    async def _call_tool(self, request: Request, stream: Stream) -> Outcome:
        tool = self._registry.tools.get(request.name or "")
        if tool is None:
            raise InvalidParams(f"Unknown tool: {request.name}")
        arguments = _arguments(request)
        if tool.mirrored and request.headers is not None and request.meta.protocol_version == versions.MODERN:
            check_mirrored_params(request.headers, tool.mirrored, arguments)
        try:
            bound = tool.parameters.bind(arguments)
        except ArgumentsInvalid as problem:
            return tool_error(f"Invalid arguments for tool {tool.key!r}: {problem}")
        if tool.handler.is_direct and _is_first(request.params):
            try:
                return Complete(tool.result(await tool.handler.call(**bound)))
            except BaseException as error:
                return _direct(tool_failure(tool, error), tool.title)
        given = Given(arguments, bound, tool.parameters.bind)
        return await self._round(tool.handler, given, request, stream, ToolEnding(tool), tool.title)

    async def _get_prompt(self, request: Request, stream: Stream) -> Outcome:
        prompt = self._registry.prompts.get(request.name or "")
        if prompt is None:
            raise InvalidParams(f"Unknown prompt: {request.name}")
        arguments = _arguments(request)
        bound = _bind(prompt.parameters, arguments, f"prompt {prompt.key!r}")
        given = Given(arguments, bound, prompt.parameters.bind_text)
        ending = PlainEnding(prompt.result)
        return await self._perform(prompt.handler, given, request, stream, ending, f"Prompt {prompt.key!r}")

    async def _read_resource(self, request: Request, stream: Stream) -> Outcome:
        uri = request.name or ""
        resource, values = self._find_resource(uri)
        try:
            bound = _bind(resource.parameters, values, f"resource {uri!r}")
        except InvalidParams:
            raise _unknown_resource(uri) from None
        given = Given(values, bound, resource.parameters.bind_text)
        ending = PlainEnding(functools.partial(resource.result, uri=uri))
        title = f"Resource {resource.key!r}"
        return await self._perform(resource.handler, given, request, stream, ending, title)

    async def _perform(
        self,
        handler: Handler,
        given: Given,
        request: Request,
        stream: Stream,
        ending: Ending,
        title: str,
    ) -> Outcome:
        """Call the handler of a prompt or a resource: directly if it has no context, else as a round."""
        if handler.is_direct and _is_first(request.params):
            try:
                value = await handler.call(**given.bound)
                return _direct(value if isinstance(value, InputRequired) else ending.complete(value), title)
            except BaseException as error:
                return _direct(ending.failed(error), title)
        return await self._round(handler, given, request, stream, ending, title)

    def _round(
        self,
        handler: Handler,
        given: Given,
        request: Request,
        stream: Stream,
        ending: Ending,
        title: str,
    ) -> Coroutine[Any, Any, Outcome]:
        """Run one round of a call, or a whole call of a client of 2025, to which questions are pushed."""
        for needed in handler.needs:
            if not declares(request.meta.capabilities, needed):
                raise MissingCapability(needed)
        call = Call(request, stream, self.state, handler, given, title, ending)
        if request.meta.protocol_version != versions.MODERN:
            return self._after_handshake(call)
        return self._rounds.run(call)

    async def _after_handshake(self, call: Call) -> Outcome:
        """Run a call of a client of 2025 or of the draft, as a task if the client asks for one."""
        task = await self._rounds.legacy_task(call)
        if task is not None:
            return task
        if call.request.meta.protocol_version in versions.LEGACY:
            return await self._rounds.pushed.run(call)
        return await self._rounds.run(call)

    def _find_resource(self, uri: str) -> tuple[Resource, dict[str, str]]:
        resource = self._registry.resources.get(uri)
        if resource is not None:
            return resource, {}
        for resource in self._registry.templates:
            if resource.template is not None and (values := resource.template.match(uri)) is not None:
                return resource, values
        raise _unknown_resource(uri)

    def _lister(self, catalog: Catalog[Any]) -> Callable[[Request], Ready]:
        def list_page(request: Request) -> Ready:
            cursor = request.params.get("cursor")
            if cursor is not None and type(cursor) is not str:
                return Failed(InvalidParams("Invalid params: `cursor` must be a string"))
            try:
                return Complete(catalog.page(cursor, self._registry.dialect.result))
            except InvalidParams as error:
                return Failed(error)

        return list_page

    def _discover(self, request: Request) -> Ready:
        return Complete(self._registry.discovery())

    async def _complete(self, request: Request, stream: Stream) -> Outcome:
        reference, argument, value, arguments = read_reference(request.params)
        kind, target = reference
        if kind == "ref/prompt" and self._registry.prompts.get(target) is None:
            raise InvalidParams(f"Unknown prompt: {target}")
        if kind == "ref/resource" and self._registry.any_resource(target) is None:
            raise _unknown_resource(target)
        completer = self._registry.completions.get(reference, argument)
        if completer is None:
            return Complete({"completion": {"values": []}})
        bound = completer.bind(value, arguments)
        return Complete(completion_result(await completer.handler.call(**bound)))

    async def _listen(self, request: Request, stream: Stream) -> Outcome:
        if not stream.can_notify:
            raise InvalidRequest("Invalid request: a subscription needs `Accept: text/event-stream`")
        wanted = read_filter(request.params)
        granted = self._registry.grant(wanted)
        tasks = None if not wanted.tasks else self._rounds.task_methods
        if tasks is not None:
            granted = msgspec.structs.replace(granted, tasks=await tasks.grant(request, wanted))
        tag = {SUBSCRIPTION_ID: request.id}
        hub = self._registry.hub
        subscription = hub.open(granted)
        try:
            acknowledged = {"_meta": tag, "notifications": granted.acknowledged()}
            if tasks is not None:
                await tasks.follow(subscription, granted, stream, acknowledged)
                return Complete({"_meta": tag})
            await stream.notify("notifications/subscriptions/acknowledged", acknowledged)
            async for change in subscription:
                await stream.notify(change.method, {"_meta": tag, **change.params()})
        finally:
            hub.close(subscription)
        return Complete({"_meta": tag})


def _task_methods(tasks: TaskMethods) -> dict[str, Answer]:
    return {
        "tasks/get": tasks.get,
        "tasks/update": tasks.update,
        "tasks/cancel": tasks.cancel,
        "tasks/result": tasks.result,
        "tasks/list": tasks.list,
        "tasks/input_response": tasks.update,
    }


def _as_answer(ready: Callable[[Request], Ready]) -> Answer:
    async def answer(request: Request, stream: Stream) -> Outcome:
        return ready(request)

    return answer


def _is_first(params: JsonObject) -> bool:
    return "requestState" not in params and "inputResponses" not in params


def _direct(ended: Outcome | InputRequired, title: str) -> Outcome:
    if isinstance(ended, InputRequired):
        raise UsageError(f"{title} returned InputRequired but takes no Context to read the answers with")
    return ended


def _arguments(request: Request) -> JsonObject:
    arguments: Any = request.params.get("arguments", {})
    if arguments.__class__ is not dict:
        raise InvalidParams("Invalid params: `arguments` must be an object")
    return arguments


def _bind(parameters: HintedParameters, arguments: dict[str, Any], what: str) -> dict[str, Any]:
    try:
        return parameters.bind_text(arguments)
    except ArgumentsInvalid as problem:
        raise InvalidParams(f"Invalid arguments for {what}: {problem}") from None


def _unknown_resource(uri: str) -> InvalidParams:
    return InvalidParams(f"Resource not found: {uri}", data={"uri": uri})
