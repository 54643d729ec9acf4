"""Runs the tool of a task: its handler in a leg, and its clean-up after a cancellation."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ekiden.errors import (
    InternalError,
    InvalidParams,
    NonDeterminismError,
    ProtocolError,
    StoreRefused,
    UsageError,
)
from ekiden.rounds.asks import Ask
from ekiden.rounds.journal import Entry
from ekiden.rounds.leg import Suspended
from ekiden.rounds.outcome import Complete, Failed, Interim, Outcome
from ekiden.server.cancellation import ends_more_than_a_call
from ekiden.server.context import Context
from ekiden.server.handlers import Handler
from ekiden.server.making import Making
from ekiden.server.middleware import Middleware, around
from ekiden.server.questions.input_required import InputRequired
from ekiden.server.registration.tools import CancelledTask, Tool
from ekiden.server.tasks.input_required import ByHand
from ekiden.server.tasks.recorded import recorded_leg
from ekiden.server.tasks.with_people import TaskPeople, is_for_a_page
from ekiden.signals import ArgumentsInvalid, Ended
from ekiden.stories.recorder import Recorder
from ekiden.tasks.leg import TaskLeg
from ekiden.tasks.record import Question, TaskRecord
from ekiden.tasks.work import Why
from ekiden.telemetry.legs import traced_leg
from ekiden.telemetry.observed import is_observed
from ekiden.transports.server.port import Stream
from ekiden.wire.json import JsonObject, copied, encode
from ekiden.wire.meta import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVELS, PROTOCOL_VERSION, RequestMeta
from ekiden.wire.modern import Request
from ekiden.wire.principal import Principal

__all__ = ["PRINCIPAL", "ToolWork"]

_log = logging.getLogger(__name__)

PRINCIPAL: Final = "ekiden/principal"
"""Where a task's row has the verified identity of who called, beside the `_meta` of the call."""


class ToolWork:
    """Implements `ekiden.tasks.work.Work`."""

    def __init__(
        self,
        tool: Tool,
        record: TaskRecord,
        state: object,
        making: Making,
        layers: Sequence[Middleware] = (),
        people: TaskPeople | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.title = f"Tool {tool.key!r}"
        declared: Mapping[str, Any] = record.meta.get(CLIENT_CAPABILITIES, {})
        self.capabilities = declared if people is None else people.askable(declared)
        is_paged = None if people is None else functools.partial(is_for_a_page, declared)
        self.is_paged: Callable[[Ask], bool] | None = is_paged
        self._people = people
        self.tidies = tool.on_cancel is not None
        self._tool = tool
        self._record = record
        self._state = state
        self._making = making
        self._layers = layers
        self._recorder = recorder

    async def run(self, leg: TaskLeg, say: Callable[[str], None]) -> Outcome | Suspended:
        """Run the handler to the end of a leg; what happens in it is recorded, if that is wanted."""
        if self._recorder is None:
            return await self._traced(leg, say)
        return await recorded_leg(self._recorder, self._record, leg, lambda: self._traced(leg, say))

    async def _traced(self, leg: TaskLeg, say: Callable[[str], None]) -> Outcome | Suspended:
        """Run it inside its span and its middleware if there are any."""
        stream = _Status(say)
        run = self._layered if self._layers else self._leg
        if is_observed():
            return await traced_leg(self._record, lambda: run(leg, _request(self._record), stream))
        return await run(leg, _request(self._record), stream)

    async def _layered(self, leg: TaskLeg, request: Request, stream: "_Status") -> Outcome | Suspended:
        inner = _Inner(lambda passed: self._leg(leg, passed, stream))
        outcome = await around(self._layers, inner.run)(request, stream)
        return inner.ended_with(outcome, self.title)

    async def _leg(self, leg: TaskLeg, request: Request, stream: "_Status") -> Outcome | Suspended:
        """Run the handler itself. An exception becomes the outcome of the task."""
        by_hand = ByHand.of(leg)
        try:
            if (waits := by_hand.waits(leg)) is not None:
                return waits
            ended = await self._ended(leg, request, stream, by_hand)
            if isinstance(ended, InputRequired):
                return by_hand.ends(leg, ended, self.capabilities)
            return ended
        except (Ended, asyncio.CancelledError):
            raise
        except NonDeterminismError as error:
            _log.error("Task %s: %s", self._record.id, error)
            return Failed(InternalError(f"NonDeterminismError: {error.told}"))
        except ProtocolError as error:
            return self._tool.refused(error)
        except StoreRefused as error:
            _log.error("Task %s: a step's value cannot be kept: %s", self._record.id, error)
            return Failed(InternalError(f"A step has run, but its value cannot be kept: {error}"))
        except ArgumentsInvalid as problem:
            return Failed(InvalidParams(f"Invalid arguments for tool {self._tool.key!r}: {problem}"))
        except Exception:
            _log.exception("%s failed in task %s", self.title, self._record.id)
            return Failed(InternalError("Internal error"))

    async def _ended(
        self, leg: TaskLeg, request: Request, stream: "_Status", by_hand: ByHand
    ) -> Outcome | Suspended | InputRequired:
        try:
            value = await leg.run(self._tool.handler.call, self._bound(leg, request, stream, by_hand))
            if isinstance(value, Suspended):
                return value
            if (made := self._making.at_once(self._tool.handler, self._tool, value)) is not None:
                return made
            making = self._making.in_turn(self._tool.handler, self._tool, value, None)
            del value
            return await making
        except (ArgumentsInvalid, StoreRefused):
            raise
        except BaseException as error:
            return self._tool.failed(error)

    def _bound(self, leg: TaskLeg, request: Request, stream: "_Status", by_hand: ByHand) -> dict[str, Any]:
        """The arguments for the handler."""
        handler = self._tool.handler
        bound = self._tool.parameters.bind(request.params["arguments"])
        if handler.context is not None:
            carried = _Carried(asked=by_hand.asked, manual=by_hand.state, answers=by_hand.answers)
            context: Context[Any] = Context(
                request, stream, self._state, leg.effects, carried, by_hand.new, handler.function
            )
            bound[handler.context] = context
        return bound

    async def put(self, asked: Sequence[Question], withdrawn: Sequence[str]) -> None:
        """Put those questions that are for people."""
        if self._people is not None:
            await self._people.put(self._record, asked, withdrawn)

    async def tidy(self, entries: Mapping[str, Entry], why: Why) -> None:
        """Run the author's clean-up. It runs again if its worker dies before it has ended."""
        assert self._tool.on_cancel is not None
        record = self._record
        cancelled = CancelledTask(record.id, record.tool, record.arguments, _steps(entries), why)
        try:
            await Handler(self._tool.on_cancel).call(cancelled)
        except BaseException as error:
            if isinstance(error, Exception) or ends_more_than_a_call(error):
                raise
            raise RuntimeError(
                f"on_cancel raised {type(error).__name__}, which is not an Exception"
            ) from error


class _Carried(msgspec.Struct):
    """Implements `ekiden.server.context.Carried` for a handler in a task."""

    asked: dict[str, str]
    manual: str | None
    answers: JsonObject
    round: int = 1


class _Inner:
    """A leg as its middleware sees it: something that has an outcome."""

    def __init__(self, leg: Callable[[Request], Awaitable[Outcome | Suspended]]) -> None:
        self._leg = leg
        self._began = False
        self._suspended: Suspended | None = None
        self._cut: Ended | None = None

    async def run(self, request: Request, stream: Stream) -> Outcome:
        """The outcome of the leg. A leg that waits is `Interim`, whatever it waits for."""
        if self._began:
            raise UsageError("a leg of a task runs once: `call_next` cannot be called again")
        self._began = True
        try:
            ended = await self._leg(request)
        except Ended as cut:
            self._cut = cut
            outcome: Outcome = cut.outcome
            return outcome
        if not isinstance(ended, Suspended):
            return ended
        self._suspended = ended
        return Interim({key: ask.request() for key, ask in ended.asks.items()}, None)

    def ended_with(self, outcome: Outcome, title: str) -> Outcome | Suspended:
        """How the leg ended, given what its middleware returned. A cancelled task stays cancelled."""
        if self._cut is not None:
            raise self._cut
        if isinstance(outcome, Complete | Failed):
            return outcome
        if self._suspended is None:
            _log.error("A middleware says that %s waits, but its leg has ended", title)
            return Failed(InternalError("Internal error"))
        return self._suspended


class _Status:
    """Implements `ekiden.transports.server.port.Stream`: notifications become the task's status message."""

    can_notify = True

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say

    async def notify(self, method: str, params: JsonObject) -> None:
        """Set the status message; a task sends no notifications to the client."""
        if method == "notifications/progress":
            self._say(_progress_text(params))
        elif LOG_LEVELS[params["level"]] >= LOG_LEVELS["info"]:
            data = params["data"]
            self._say(data if isinstance(data, str) else encode(data).decode())


def _progress_text(params: Mapping[str, object]) -> str:
    done = f"{params['progress']:g}"
    if "total" in params:
        done += f"/{params['total']:g}"
    return f"{params['message']} ({done})" if "message" in params else done


def _request(record: TaskRecord) -> Request:
    """The request that became the task, with the task's id as its own."""
    fields: JsonObject = copied({key: value for key, value in record.meta.items() if key != PRINCIPAL})
    known = record.meta.get(PRINCIPAL)
    principal = None if known is None else msgspec.convert(known, Principal)
    meta = RequestMeta(
        fields.get(PROTOCOL_VERSION, ""),
        fields.get(CLIENT_CAPABILITIES, {}),
        fields.get(CLIENT_INFO),
        "info",
        record.id,
        fields,
    )
    params = {"name": record.tool, "arguments": record.arguments, "_meta": fields}
    return Request(record.id, "tools/call", params, meta, record.tool, None, record.id, principal=principal)


def _steps(entries: Mapping[str, Entry]) -> dict[str, list[Any]]:
    done: dict[str, list[Any]] = {}
    for key, entry in entries.items():
        if entry.kind == "step":
            name = key[2:].partition(f"-{entry.digest}")[0]
            done.setdefault(name, []).append(entry.value)
    return done
