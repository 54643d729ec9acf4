"""Answers what a server asks: with the answers given beforehand, else by asking the user.

The user gets the questions of one round one after another. Without a terminal, the call fails with the
question, its key, and how to give the answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ekiden.cli.terminal.answers import MODEL, GivenAnswers
from ekiden.cli.terminal.fields import Field, fields_of
from ekiden.cli.terminal.forms import Forms
from ekiden.cli.terminal.pages import read_page
from ekiden.cli.terminal.prompting import Terminal
from ekiden.cli.terminal.screen import Screen, one_line
from ekiden.client.scripted import model_reply, question_text
from ekiden.errors import InvalidResult, UsageError
from ekiden.rounds.asks import ELICIT, LIST_ROOTS, SAMPLE
from ekiden.wire.json import JsonObject, is_object

if TYPE_CHECKING:
    from mcp_types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        ElicitRequestFormParams,
        ElicitRequestURLParams,
        ElicitResult,
    )

__all__ = ["Responder"]

_ATTEMPT: Final = re.compile(r"\.[1-9][0-9]*$")
"""In a task, a question's key ends with the number of the attempt."""

_MOST_CHOICES: Final = 10
"""Choices of a field that are named where there is no terminal to choose at."""


class Responder:
    """Answers the questions of one call."""

    def __init__(self, script: GivenAnswers, screen: Screen, roots: Sequence[str]) -> None:
        self._script = script
        self._screen = screen
        self._roots = list(roots)
        self._terminal = Terminal()
        self._forms = Forms(screen, self._terminal)
        self._one_at_a_time = asyncio.Lock()
        self.server = "The server"
        """The server's name, as the user reads it."""
        self.call: asyncio.Task[Any] | None = None
        """The asyncio task of the call: cancelled if a pushed question has no answer."""
        self.failure: UsageError | None = None

    async def respond_all(self, requests: Mapping[str, Any]) -> JsonObject:
        """The responses of one round; fails before the user is asked if one cannot be answered."""
        _check(requests)
        given = {key: self._given(key, request) for key, request in requests.items()}
        lacking = {key: requests[key] for key, response in given.items() if response is None}
        if lacking and not self._terminal.is_there():
            raise _unanswered(lacking)
        return {
            key: response if response is not None else await self._ask(requests[key])
            for key, response in given.items()
        }

    async def respond_some(self, requests: Mapping[str, Any]) -> JsonObject:
        """The responses to some of the questions: without a terminal, only those given beforehand.

        Fails if there is no answer at all, or if one was given that fits no question.
        """
        _check(requests)
        given = {key: self._given(key, request) for key, request in requests.items()}
        if (unused := self._script.unused()) is not None:
            asked = ", ".join(repr(question_text(request)) for request in requests.values())
            raise UsageError(f"the answer {unused!r} fits nothing that is asked: {asked}")
        if not self._terminal.is_there() and any(given.values()):
            requests = {key: request for key, request in requests.items() if given[key] is not None}
        return await self.respond_all(requests)

    def _given(self, key: str | None, request: Mapping[str, Any]) -> JsonObject | None:
        response = self._script.respond(key, request)
        if response is None and key is not None and (attempt := _ATTEMPT.search(key)) is not None:
            response = self._script.respond(key[: attempt.start()], request)
        if response is None and request.get("method") == LIST_ROOTS:
            return {"roots": [{"uri": root} for root in self._roots]}
        return response

    async def _ask(self, request: Mapping[str, Any]) -> JsonObject:
        async with self._one_at_a_time:
            self._screen.clear()
            params: JsonObject = request.get("params") or {}
            if request.get("method") == ELICIT and params.get("mode", "form") == "url":
                return await self._forms.visit(self.server, params)
            if request.get("method") == ELICIT:
                return await self._forms.fill_in(self.server, params)
            text = await self._forms.write(self.server, question_text(request))
            return model_reply(text, MODEL)

    # Callbacks for servers before 2026, which send questions as requests

    async def elicit(self, params: ElicitRequestFormParams | ElicitRequestURLParams) -> ElicitResult:
        """Answer a pushed form or page."""
        from mcp_types import ElicitResult

        return ElicitResult.model_validate(await self._respond(ELICIT, params))

    async def sample(self, params: CreateMessageRequestParams) -> CreateMessageResult:
        """Answer for the model."""
        from mcp_types import CreateMessageResult

        return CreateMessageResult.model_validate(await self._respond(SAMPLE, params))

    async def roots(self) -> list[str]:
        """The roots."""
        given = self._given(None, {"method": LIST_ROOTS}) or {}
        return [root["uri"] for root in given["roots"]]

    async def _respond(self, method: str, params: Any) -> JsonObject:
        request = {
            "method": method,
            "params": params.model_dump(mode="json", by_alias=True, exclude_unset=True),
        }
        try:
            given = self._given(None, request)
            if given is None and not self._terminal.is_there():
                raise _unanswered({"": request})
            return given if given is not None else await self._ask(request)
        except UsageError as error:
            self.failure = error
            assert self.call is not None
            self.call.cancel()
            await asyncio.Event().wait()  # Until the call's cancellation reaches this.
            raise


def _check(requests: Mapping[str, Any]) -> None:
    """Refuse malformed asks before they reach the screen."""
    from ekiden.client.answering import check_count

    check_count(requests)
    for key, request in requests.items():
        params: Any = (request.get("params") or {}) if is_object(request) else None
        if not is_object(params) or not is_object(params.get("requestedSchema", {})):
            raise InvalidResult(f"The server's ask {key!r} is malformed")
        if request.get("method") not in (ELICIT, SAMPLE, LIST_ROOTS):
            raise InvalidResult(f"The server asks something unknown: {request.get('method')!r}")


def _unanswered(requests: Mapping[str, Any]) -> UsageError:
    questions = "; ".join(_described(key, request) for key, request in requests.items())
    return UsageError(
        f"no answer is given to {questions}, and there is no terminal to ask at. "
        "Give it with --answer 'KEY=VALUE' or --answers FILE.json, by key or by a part of the message"
    )


def _described(key: str, request: Mapping[str, Any]) -> str:
    params: JsonObject = request.get("params") or {}
    named = f" (key {key!r}" if key else " ("
    fields = [_wanted(field) for field in fields_of(params.get("requestedSchema") or {})]
    about = "; ".join(fields) if fields else str(request.get("method"))
    if "url" in params:
        page = read_page(str(params["url"]))
        about = page if isinstance(page, str) else page.address
    return f"{question_text(request)!r}{named}{'; ' if key else ''}{about})"


def _wanted(field: Field) -> str:
    """What may be filled in, in a few words."""
    name = field.name if field.required else f"{field.name} (optional)"
    kind = field.schema.get("format") or field.schema.get("type", "any")
    if choices := [one_line(value) for value, _ in field.choices]:
        more = ", ..." if len(choices) > _MOST_CHOICES else ""
        kind = f"{'some' if field.kind == 'choices' else 'one'} of {', '.join(choices[:_MOST_CHOICES])}{more}"
    return f"{name}: {kind}"
