"""From a request to its outcome: find the handler, check what it needs, call it, report how it ended.

Errors follow one table. What the caller of a tool can correct is an `isError` result. A wrong request
is a JSON-RPC error. A mistake of the author is logged with its traceback; the client gets no details.
"""

import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from ekiden.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    MissingCapability,
    ProtocolError,
    ResourceNotFound,
    StoreUnavailable,
    UsageError,
)
from ekiden.rounds.asks import declares
from ekiden.rounds.outcome import Complete, Failed, Outcome, untraced
from ekiden.server.cancellation import ends_more_than_a_call
from ekiden.server.legacy.methods import session_answers
from ekiden.server.middleware import Run
from ekiden.server.questions.input_required import InputRequired
from ekiden.server.registration.catalog import Catalog
from ekiden.server.registration.completions import completion_result, read_reference
from ekiden.server.registration.extensions import Answer
from ekiden.server.registration.registry import Registry
from ekiden.server.registration.results import (
    PlainEnding,
    tool_error,
)
from ekiden.server.registration.signatures import HintedParameters
from ekiden.server.registration.templates import LONGEST_READ
from ekiden.server.registration.tools import Tool
from ekiden.server.rounds.call import Call
from ekiden.server.rounds.rounds import Rounds
from ekiden.server.subscriptions import read_filter
from ekiden.signals import ArgumentsInvalid
from ekiden.transports.server.large.begins import FEW
from ekiden.transports.server.port import Ready, Stream
from ekiden.wire import versions
from ekiden.wire.headers import check_mirrored_params
from ekiden.wire.json import JsonObject, extract
from ekiden.wire.meta import SUBSCRIPTION_ID
from ekiden.wire.modern import Request
from ekiden.wire.principal import require
from ekiden.wire.printable import printable

__all__ = ["Answer", "Dispatcher"]

_log = logging.getLogger(__name__)

_MOST_HELD: Final = 8 * 1024
"""Bytes of its request that a subscription holds."""
_LATER: Final = frozenset({"requestState", "inputResponses"})
"""The parameters of rounds after the first."""


class Dispatcher:
    """Answers every method of the protocol out of a registry."""

    def __init__(self, registry: Registry, rounds: Rounds) -> None:
        self._registry = registry
        self._rounds = rounds
        self._making = rounds.making
        self.ready: dict[str, Callable[[Request, Stream], Ready]] = {
            "server/discover": self._discover,
            "tools/list": self._lister(registry.tools),
            "prompts/list": self._lister(registry.prompts),
            "resources/list": self._lister(registry.resources),
            "resources/templates/list": self._lister(registry.templates),
        }
        """The methods that never wait: their answers are kept as bytes."""
        self._answers: dict[str, Answer] = {
            "prompts/get": self._get_prompt,
            "resources/read": self._read_resource,
            "completion/complete": self._complete,
            "subscriptions/listen": self._listen,
            **session_answers,
            **registry.extensions.answers(),
            **{method: _as_answer(ready) for method, ready in self.ready.items()},
        }
        self.state: object = None
        """What the lifespan yielded."""

    def learn_extensions(self) -> None:
        """Answer the methods of extensions that came after the start: those of mounted servers."""
        self._answers.update(self._registry.extensions.answers())

    def answer(self, request: Request, stream: Stream) -> Coroutine[Any, Any, Outcome]:
        """Answer a request whose method is known. Raises only what `ends_more_than_a_call`."""
        if request.method == "tools/call":
            return self.call_tool(request, stream)
        return self._answer(request, stream)

    async def _answer(self, request: Request, stream: Stream) -> Outcome:
        try:
            return await self._answers[request.method](request, stream)
        except BaseException as error:
            outcome = self._failed(request, error)
            if outcome is None:
                raise
            return outcome

    async def call_tool(self, request: Request, stream: Stream) -> Outcome:
        """Answer `tools/call`. Most tools need no round: this is all between them and a transport."""
        try:
            tool = self._registry.tools.get(request.name or "")
            if tool is None or tool.elsewhere is not None:
                return await self._elsewhere(request, tool)(request, stream)
            handler, begins = tool.handler, self._making.large.begins
            arguments = request.params.get("arguments", {})
            if handler.scopes or tool.mirrored or arguments.__class__ is not dict:
                _check(request, tool, arguments)
            try:
                bound = tool.bind(arguments)
            except ArgumentsInvalid as problem:
                return tool_error(f"Invalid arguments for tool {tool.key!r}: {problem}")
            if handler.may_wait or (begins.left <= FEW and begins.full()):
                await self._making.may_begin(handler, request)
            begins.left -= 1
            if handler.is_direct and _LATER.isdisjoint(request.params):
                try:
                    value = await handler.call(**bound)
                    ended = self._making.at_once(handler, tool, value)
                    if ended is None:
                        making = self._making.in_turn(handler, tool, value, request)
                        del value  # If it is given up while it waits, it is to be forgotten at once.
                        ended = await making
                except BaseException as error:
                    ended = tool.failed(error)
                return ended if type(ended) is Complete else _direct(ended, tool.title)
            call = Call(request, stream, self.state, handler, arguments, bound, tool.bind, tool.title, tool)
            return await self._round(call)
        except BaseException as error:
            outcome = self._failed(request, error)
            if outcome is None:
                raise
            return outcome

    def _elsewhere(self, request: Request, tool: Tool | None) -> Run:
        """Who answers a call of a tool that this server does not run itself."""
        if tool is not None and tool.elsewhere is not None:
            return tool.elsewhere
        if (elsewhere := self._registry.find_elsewhere(request.name or "")) is None:
            raise InvalidParams(f"Unknown tool: {(request.name or '')[:200]}")
        return elsewhere

    def _failed(self, request: Request, error: BaseException) -> Outcome | None:
        """The outcome of a request that ended with an exception; None if that `ends_more_than_a_call`."""
        if isinstance(error, ProtocolError):
            is_tool = request.method == "tools/call"
            tool = self._registry.tools.get(request.name or "") if is_tool else None
            return Failed(error) if tool is None else tool.refused(error)
        if isinstance(error, StoreUnavailable):
            _log.error("%s %s: %s", request.method, printable(request.name or ""), error)
            untraced(error)
            return Failed(InternalError("The server's store is not available right now: try again later"))
        if ends_more_than_a_call(error):
            return None
        _log.error("%s %s failed", request.method, printable(request.name or ""), exc_info=error)
        untraced(error)
        return Failed(InternalError("Internal error"))

    async def _get_prompt(self, request: Request, stream: Stream) -> Outcome:
        prompt = self._registry.prompts.get(request.name or "")
        if prompt is None:
            if (elsewhere := self._registry.find_elsewhere(request.name or "")) is not None:
                return await elsewhere(request, stream)
            raise InvalidParams(f"Unknown prompt: {(request.name or '')[:200]}")
        if prompt.elsewhere is not None:
            return await prompt.elsewhere(request, stream)
        require(request.principal, prompt.handler.scopes)
        arguments = _arguments(request)
        bound = _bind(prompt.parameters, arguments, f"prompt {prompt.key!r}")
        ending = PlainEnding(prompt.result)
        title, bind = f"Prompt {prompt.key!r}", prompt.parameters.bind_text
        return await self._perform(
            Call(request, stream, self.state, prompt.handler, arguments, bound, bind, title, ending)
        )

    async def _read_resource(self, request: Request, stream: Stream) -> Outcome:
        uri = request.name or ""
        if len(uri) > LONGEST_READ:
            raise InvalidParams(f"Invalid params: `uri` has more than {LONGEST_READ} characters")
        found = self._registry.find_resource(uri)
        if found is None:
            raise ResourceNotFound(uri)
        resource, values = found
        if resource.elsewhere is not None:
            return await resource.elsewhere(request, stream)
        require(request.principal, resource.handler.scopes)
        try:
            bound = _bind(resource.parameters, values, f"resource {uri!r}")
        except InvalidParams:
            raise ResourceNotFound(uri) from None
        ending = PlainEnding(functools.partial(resource.result, uri=uri))
        title, bind = f"Resource {resource.key!r}", resource.parameters.bind_text
        return await self._perform(
            Call(request, stream, self.state, resource.handler, values, bound, bind, title, ending)
        )

    async def _perform(self, call: Call) -> Outcome:
        """Call the handler of a prompt or a resource: directly if it has no context, else as a round."""
        begins = self._making.large.begins
        if call.handler.may_wait or (begins.left <= FEW and begins.full()):
            await self._making.may_begin(call.handler, call.request)
        begins.left -= 1
        if call.handler.is_direct and _LATER.isdisjoint(call.request.params):
            try:
                value = await call.handler.call(**call.bound)
                ended = self._making.at_once(call.handler, call.ending, value)
                if ended is None:
                    making = self._making.in_turn(call.handler, call.ending, value, call.request)
                    del value  # If it is given up while it waits, it is to be forgotten at once.
                    ended = await making
            except BaseException as error:
                ended = call.ending.failed(error)
            return _direct(ended, call.title)
        return await self._round(call)

    def _round(self, call: Call) -> Coroutine[Any, Any, Outcome]:
        """Run one round of a call, or a whole call of a client of 2025, to which questions are pushed."""
        meta = call.request.meta
        for needed in call.handler.needs:
            if not declares(self._rounds.askable(call.request), needed):
                raise MissingCapability(needed)
        if meta.protocol_version != versions.MODERN:
            return self._after_handshake(call)
        return self._rounds.run(call)

    async def _after_handshake(self, call: Call) -> Outcome:
        """Run a call of a client of 2025 or of the draft, as a task if the client asks for one."""
        task = await self._rounds.legacy_task(call)
        if task is not None:
            return task
        if call.request.meta.protocol_version in versions.LEGACY:
            return await self._rounds.run_pushed(call)
        return await self._rounds.run(call)

    def _lister(self, catalog: Catalog[Any]) -> Callable[[Request, Stream], Ready]:
        def list_page(request: Request, stream: Stream) -> Ready:
            cursor = request.params.get("cursor")
            if cursor is not None and type(cursor) is not str:
                return Failed(InvalidParams("Invalid params: `cursor` must be a string"))
            spell = self._registry.dialect.result
            try:
                if catalog.scopes:
                    granted = frozenset[str]() if request.principal is None else request.principal.scopes
                    return Complete(catalog.page_for(granted, cursor, spell))
                return Complete(catalog.page(cursor, spell))
            except InvalidParams as error:
                return Failed(error)

        return list_page

    def _discover(self, request: Request, stream: Stream) -> Ready:
        return Complete(self._registry.discovery())

    async def _complete(self, request: Request, stream: Stream) -> Outcome:
        reference, argument, value, arguments = read_reference(request.params)
        kind, target = reference
        prompt = kind == "ref/prompt"
        named = self._registry.prompts.get(target) if prompt else self._registry.any_resource(target)
        if named is None:
            if prompt:
                raise InvalidParams(f"Unknown prompt: {target[:200]}")
            raise ResourceNotFound(target[:LONGEST_READ])
        require(request.principal, named.handler.scopes)
        if named.completes is not None:
            return await named.completes(request, stream)
        completer = self._registry.completions.get(reference, argument)
        if completer is None:
            return Complete({"completion": {"values": []}})
        bound = completer.bind(value, arguments)
        if completer.handler.context is not None:
            context = self._rounds.pushed.context_of_completion(request, stream, self.state)
            bound[completer.handler.context] = context
        return Complete(completion_result(await completer.handler.call(**bound)))

    async def _listen(self, request: Request, stream: Stream) -> Outcome:
        if not stream.can_notify:
            raise InvalidRequest("Invalid request: a subscription needs `Accept: text/event-stream`")
        wanted = read_filter(request.params)
        granted = self._registry.readable(self._registry.grant(wanted), request.principal)
        feed, follow = self._registry.extensions.feed_for(wanted), None
        if feed is not None:
            granted, follow = await feed.grant(request, wanted, granted)
        tag = {SUBSCRIPTION_ID: request.id}
        hub = self._registry.hub
        await hub.ready()
        subscription = hub.open(granted, self._rounds.owner_of(request))
        watching = request.watch(subscription.cut)
        _let_go(request)
        try:
            acknowledged = {"_meta": tag, "notifications": granted.acknowledged()}
            if follow is not None:
                await follow(subscription, stream, acknowledged)
                return Complete({"_meta": tag})
            await stream.notify("notifications/subscriptions/acknowledged", acknowledged)
            async for change in subscription:
                await stream.notify(change.method, {"_meta": tag, **change.params()})
        finally:
            hub.close(subscription)
            if watching is not None:
                watching.cancel()
        return Complete({"_meta": tag})


def _let_go(request: Request) -> None:
    """Forget what a request said, except for a part: its answer may take as long as the client stays."""
    meta = request.meta
    for said in (meta.capabilities, meta.client_info or {}, meta.fields, request.params):
        part = extract(said, _MOST_HELD)
        if part is not said:
            said.clear()
            said.update(part)


def _as_answer(ready: Callable[[Request, Stream], Ready]) -> Answer:
    return lambda request, stream: _known(ready(request, stream))


async def _known(outcome: Outcome) -> Outcome:
    return outcome


def _direct(ended: Outcome | InputRequired, title: str) -> Outcome:
    if isinstance(ended, InputRequired):
        raise UsageError(f"{title} returned InputRequired but takes no Context to read the answers with")
    return ended


def _check(request: Request, tool: Tool, arguments: Any) -> None:
    """Refuse a call whose caller may not make it, and one whose headers differ from its arguments.

    Other versions have no such headers.
    """
    if tool.handler.scopes:
        require(request.principal, tool.handler.scopes)
    if arguments.__class__ is not dict:
        raise _no_arguments()
    if tool.mirrored and request.headers is not None and request.meta.protocol_version == versions.MODERN:
        check_mirrored_params(request.headers, tool.mirrored, arguments)


def _arguments(request: Request) -> JsonObject:
    arguments: Any = request.params.get("arguments", {})
    if arguments.__class__ is not dict:
        raise _no_arguments()
    return arguments


def _no_arguments() -> InvalidParams:
    return InvalidParams("Invalid params: `arguments` must be an object")


def _bind(parameters: HintedParameters, arguments: dict[str, Any], what: str) -> dict[str, Any]:
    try:
        return parameters.bind_text(arguments)
    except ArgumentsInvalid as problem:
        raise InvalidParams(f"Invalid arguments for {what}: {problem}") from None
