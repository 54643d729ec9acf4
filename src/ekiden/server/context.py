"""`Context`: what a handler can do besides returning a value.

A handler that needs it declares a parameter annotated with `Context` (or `Context[State]`, where
`State` is what the lifespan yields). A context belongs to one call. Its methods are effects: an
interpreter (`ekiden.rounds.interpreter`) decides what each of them does, for example whether a question
ends the round or is sent at once. The handler's code is the same for all interpreters.
"""

import inspect
import random
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Protocol, TypeAlias, overload

from typing_extensions import TypeVar

from ekiden.errors import UsageError
from ekiden.private_struct import PrivateStruct
from ekiden.rounds.asks import Person, declares, is_method
from ekiden.rounds.interpreter import Interpreter
from ekiden.rounds.pushing import Push
from ekiden.server.questions import questions
from ekiden.server.questions.addressed import addressed
from ekiden.server.questions.content import check_progress, loggable
from ekiden.server.questions.forms import Answer, form_for, with_meta
from ekiden.server.questions.input_required import read_response
from ekiden.server.steps.effects import StepEffects
from ekiden.stories.telling import current_story
from ekiden.transports.server.port import Stream
from ekiden.wire.json import JsonObject
from ekiden.wire.meta import LOG_LEVELS, RequestMeta
from ekiden.wire.modern import Request
from ekiden.wire.principal import Principal, grants, is_scope

if TYPE_CHECKING:
    from mcp_types import (
        CreateMessageResultWithTools,
        IncludeContext,
        InputResponse,
        ModelPreferences,
        Root,
        SamplingMessage,
        Tool,
        ToolChoice,
    )

__all__ = ["Carried", "Context", "LogLevel"]

StateT = TypeVar("StateT", default=Any)
T = TypeVar("T")

_Meta: TypeAlias = Mapping[str, Any] | None
_Who: TypeAlias = str | Person | None
_Choices: TypeAlias = list[str] | tuple[str, ...]
LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class Carried(Protocol):
    """What a call carries from round to round for a handler that returns `InputRequired`.

    A `CallState` implements it; in a task it comes from the journal.
    """

    @property
    def round(self) -> int:
        """0 in the first round."""
        ...

    @property
    def asked(self) -> Mapping[str, str]:
        """What the last round asked, by key: the method of each question."""
        ...

    @property
    def manual(self) -> str | None:
        """The state that the handler wrote."""
        ...

    @property
    def answers(self) -> Mapping[str, object] | None:
        """The answers of earlier rounds."""
        ...


def _no_handler() -> None:
    """The handler of a context that was made without one."""


class Context(StepEffects, PrivateStruct, Generic[StateT]):
    """One call, from the inside of its handler."""

    request: Request
    """The request as it came: method, params, `_meta`, HTTP headers where there are any."""
    _stream: Stream
    state: StateT
    """What the server's lifespan yielded."""
    _leg: Interpreter
    _carried: Carried
    _responses: Mapping[str, object]
    _handler: Callable[..., Any] = _no_handler
    _progress: float | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Context[StateT]":
        """Return the same object: a step gets copies of its arguments, but the context of its call."""
        return self

    def rebind(self, request: Request, stream: Stream) -> None:
        """Attach the context of a parked handler to the next request of its call."""
        self.request, self._stream, self._progress = request, stream, None

    def give_up(self, error: Exception) -> None:
        """End the call with an error, because the handler takes longer than it may, and will not end."""
        self._leg.give_up(error)

    def for_plain_function(self) -> "Context[StateT]":
        """The context for a handler that is a plain `def`: what must be awaited raises when it is used."""
        return _ContextInThread(
            self.request,
            self._stream,
            self.state,
            self._leg,
            self._carried,
            self._responses,
            self._handler,
        )

    @property
    def meta(self) -> RequestMeta:
        """The request's `_meta`: protocol version, capabilities, client info, and all other keys."""
        return self.request.meta

    @property
    def principal(self) -> Principal | None:
        """The verified identity of the caller: subject, client, scopes, claims. None without `auth=`."""
        return self.request.principal

    @property
    def supports_rounds(self) -> bool:
        """Whether questions end the round. False for clients of 2025: questions are pushed to them."""
        return not isinstance(self._leg, Push)

    # Asking. Not `async def`: where a question ends the round, every coroutine around it has to be unwound.

    @overload
    def elicit(
        self, message: str, schema: type[T], *, key: str | None = None, meta: _Meta = None, who: _Who = None
    ) -> Coroutine[Any, Any, Answer[T]]: ...
    @overload
    def elicit(
        self, message: str, schema: _Choices, *, key: str | None = None, meta: _Meta = None, who: _Who = None
    ) -> Coroutine[Any, Any, Answer[str]]: ...
    @overload
    def elicit(
        self, message: str, schema: object, *, key: str | None = None, meta: _Meta = None, who: _Who = None
    ) -> Coroutine[Any, Any, Answer[Any]]: ...
    def elicit(
        self, message: str, schema: object, *, key: str | None = None, meta: _Meta = None, who: _Who = None
    ) -> Coroutine[Any, Any, Answer[Any]]:
        """Show the user a form, and wait for the answer.

        `schema` is a pydantic model of simple fields; or one simple type: `bool`, `str`, `int`, `float`, a
        `Literal`, an `Enum`, a list of either; or texts to choose one from; or a JSON Schema of that kind.
        `meta` is sent as the question's `_meta`: `{"ui": {"resourceUri": "ui://..."}}` names a page that a
        client with MCP Apps shows in place of the form. It does not make the question another one.
        `who` is somebody else than the client's user, by name or address, who answers on a page; a `Person`
        also says when to remind and what happens without an answer. It needs `Server(pages=...)`.
        """
        ask = form_for(schema).ask(message)
        if who is not None:
            ask = addressed(ask, who, self._leg.capabilities)
        return self._leg.ask(ask if meta is None else with_meta(ask, meta), key)

    def elicit_url(
        self, message: str, url: str, *, key: str | None = None
    ) -> Coroutine[Any, Any, Answer[None]]:
        """Ask the user to open a page. `Accepted` means that the user agreed, not that the page is done."""
        return self._leg.ask(questions.url(message, url), key)

    def sample(
        self,
        messages: "str | Sequence[SamplingMessage | str]",
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        model_preferences: "ModelPreferences | None" = None,
        include_context: "IncludeContext | None" = None,
        tools: "Sequence[Tool] | None" = None,
        tool_choice: "ToolChoice | None" = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> "Coroutine[Any, Any, CreateMessageResultWithTools]":
        """Ask the client's model for a message. A `str` in `messages` is a message of the user."""
        ask = questions.sampling(
            messages,
            maxTokens=max_tokens,
            systemPrompt=system_prompt,
            temperature=temperature,
            stopSequences=None if stop_sequences is None else list(stop_sequences),
            modelPreferences=model_preferences,
            includeContext=include_context,
            tools=None if tools is None else list(tools),
            toolChoice=tool_choice,
            metadata=metadata,
        )
        return self._leg.ask(ask, key)

    def list_roots(self, *, key: str | None = None) -> "Coroutine[Any, Any, list[Root]]":
        """Ask the client which directories and files the server may work on."""
        return self._leg.ask(questions.ROOTS, key)

    async def ask(self, request: Mapping[str, Any], *, key: str | None = None) -> JsonObject:
        """Ask what `request` says in the words of the protocol: a `method` and its `params`.

        The answer is the client's result as it came. For handlers that pass on questions of others.
        """
        answer: JsonObject = await self._leg.ask(questions.spelled_out(request), key)
        return answer

    def can_ask(self, what: questions.Askable) -> bool:
        """Whether this can be asked: the client declared it, or the server has pages for it."""
        if what not in questions.NEEDS:
            raise UsageError(f"can_ask() takes one of {', '.join(questions.NEEDS)}, not {what!r}")
        return declares(self._leg.capabilities, questions.NEEDS[what])

    async def require_scope(self, *scopes: str) -> None:
        """Go on only if the caller's access token grants these scopes.

        If not, the round ends with the HTTP status 403 that makes clients ask for more. The call goes on when
        the client comes back with the same state and a better token; steps that have run do not run again.
        """
        if not scopes:
            raise UsageError("ctx.require_scope() takes at least one scope")
        for scope in scopes:
            if not is_scope(scope):
                raise UsageError(f"{scope!r} is not a scope: no spaces, quotes or backslashes")
        await self._leg.permit(scopes, grants(self.request.principal, scopes))

    # Doing things once

    def now(self, *, key: str | None = None) -> datetime:
        """The time, the same in every round."""
        stamp: float = self._leg.draw("now", self._leg.clock, key)
        return datetime.fromtimestamp(stamp, UTC)

    def uuid(self, *, key: str | None = None) -> uuid.UUID:
        """A random id, the same in every round."""
        return uuid.UUID(self._leg.draw("uuid", lambda: str(uuid.uuid4()), key))

    def random(self, *, key: str | None = None) -> float:
        """A random number from 0 to 1, the same in every round. Not for secrets."""
        number: float = self._leg.draw("random", random.random, key)
        return number

    async def checkpoint(self, *, key: str | None = None) -> None:
        """End the round without a question. The client calls again at once, and any worker can go on."""
        await self._leg.pause(key)

    async def background(self, *, ttl: float | None = None, poll_interval: float | None = None) -> None:
        """Go on as a task from here, if the client supports tasks: the call is answered with the task's id.

        Needs `@server.tool(task="deferred")`. `ttl` and `poll_interval` are seconds.
        """
        await self._leg.background(ttl, poll_interval)

    async def sleep(self, seconds: float, *, key: str | None = None) -> None:
        """Wait. The moment at which the wait ends is the same in every round."""
        await self._leg.sleep(seconds, key)

    # The manual way

    @property
    def input_responses(self) -> "Mapping[str, InputResponse]":
        """The answers to `InputRequired` of all rounds so far; for each key the newest."""
        self._leg.use("manual")
        asked = {key: method for key, method in self._carried.asked.items() if is_method(method)}
        read = {key: read_response(key, raw, asked.get(key)) for key, raw in self.raw_responses().items()}
        return {key: response for key, response in read.items() if response is not None}

    @property
    def request_state(self) -> str | None:
        """The state that this handler gave with its last `InputRequired`, as it was written."""
        self._leg.use("manual")
        return self._carried.manual

    @property
    def manual_state(self) -> str | None:
        """The same state, for handlers of another server: to look at it commits the handler to nothing."""
        return self._carried.manual

    def raw_responses(self) -> dict[str, Any]:
        """The answers to `InputRequired`, not validated. After the first round only to what was asked."""
        asked, is_first = self._carried.asked, not self._carried.round
        known = {key: raw for key, raw in self._responses.items() if is_first or is_method(asked.get(key))}
        return {**(self._carried.answers or {}), **known}

    # Notifications

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is.

        Sent only if the client gave a progress token. A value that is not higher than the last is dropped.
        """
        check_progress(progress, total, message)
        if self._leg.fresh and (story := current_story.get()) is not None:
            story.said("progress", message or "", [progress, total])
        token = self.request.meta.progress_token
        if (
            token is None
            or not self._leg.fresh
            or (self._progress is not None and progress <= self._progress)
        ):
            return
        self._progress = progress
        params: JsonObject = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self._stream.notify("notifications/progress", params)

    async def log(self, level: LogLevel, data: object, *, logger: str | None = None) -> None:
        """Send a log message to the client, if the request set a log level and `level` is not below it.

        `data` is text, or data as a tool returns it. `debug`, `info`, `notice`, `warning` and `error` are
        short for the levels that are used most; the others are `"critical"`, `"alert"` and `"emergency"`.
        """
        if level not in LOG_LEVELS:
            raise UsageError(f"ctx.log() takes one of the levels {', '.join(LOG_LEVELS)}, not {level!r}")
        if self._leg.fresh and (story := current_story.get()) is not None:
            story.said("log", level, data, logger or "")
        wanted = self.request.meta.log_level
        if wanted is None or not self._leg.fresh or LOG_LEVELS[level] < LOG_LEVELS[wanted]:
            return
        params: JsonObject = {"level": level, "data": data if isinstance(data, str) else loggable(data)}
        if logger is not None:
            params["logger"] = logger
        await self._stream.notify("notifications/message", params)

    async def debug(self, data: object, *, logger: str | None = None) -> None:
        """`log` at level `debug`."""
        await self.log("debug", data, logger=logger)

    async def info(self, data: object, *, logger: str | None = None) -> None:
        """`log` at level `info`."""
        await self.log("info", data, logger=logger)

    async def notice(self, data: object, *, logger: str | None = None) -> None:
        """`log` at level `notice`: normal, but significant."""
        await self.log("notice", data, logger=logger)

    async def warning(self, data: object, *, logger: str | None = None) -> None:
        """`log` at level `warning`."""
        await self.log("warning", data, logger=logger)

    async def error(self, data: object, *, logger: str | None = None) -> None:
        """`log` at level `error`. It does not end the call: raise `ToolError` for that."""
        await self.log("error", data, logger=logger)

    def close_stream(self) -> None:
        """Close the connection of a client of 2025. The call goes on, and the client reconnects for the rest.

        Useful where a call takes longer than a connection should. For other clients this does nothing.
        """
        hang_up = getattr(self._stream, "hang_up", None)
        if hang_up is not None:
            hang_up()


_QUESTIONS: Final = frozenset({"elicit", "elicit_url", "sample", "list_roots"})
"""The effects that ask: they return what is to be awaited."""


class _ContextInThread(Context[StateT]):
    """Says what to write instead where a plain `def` uses an effect that only `async def` can await."""

    def __getattribute__(self, name: str) -> Any:
        value: Any = super().__getattribute__(name)
        if name in _QUESTIONS or inspect.iscoroutinefunction(value):
            raise UsageError(
                f"ctx.{name}() must be awaited, which a plain `def` cannot: write the handler as `async def` "
                f"and `await ctx.{name}(...)` in it"
            )
        return value
