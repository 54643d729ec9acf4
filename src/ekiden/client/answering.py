"""Callbacks answer what a server asks. Which callbacks there are decides which capabilities are declared.

The questions of one round are answered concurrently. The first failure cancels the others and is raised.
If a question has no callback, the round fails before the user is asked anything. What a callback returns is
checked before it is sent.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Union

from pydantic import BaseModel, ValidationError

from ekiden.client.checking import LeftOut, check_response, dump, read_question
from ekiden.errors import CannotAnswer, InvalidResult
from ekiden.rounds.asks import ELICIT, SAMPLE
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:
    from mcp_types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        CreateMessageResultWithTools,
        ElicitRequestFormParams,
        ElicitRequestURLParams,
        ElicitResult,
        Root,
    )

__all__ = ["MOST_ASKS", "Answerer", "Elicit", "ElicitUrl", "Roots", "Sample", "check_count"]

Elicit: TypeAlias = "Callable[[ElicitRequestFormParams], Awaitable[ElicitResult | LeftOut]]"
ElicitUrl: TypeAlias = "Callable[[ElicitRequestURLParams], Awaitable[ElicitResult | LeftOut]]"
Sample: TypeAlias = Callable[
    ["CreateMessageRequestParams"],
    Awaitable[Union["CreateMessageResult", "CreateMessageResultWithTools", LeftOut]],
]
Roots: TypeAlias = Union["Sequence[Root | str]", "Callable[[], Awaitable[Sequence[Root | str]]]"]

MOST_ASKS: Final = 100
"""Questions of one round, or open at once. A person reads each form and would not read more; only a hostile
server sends more."""


class Answerer:
    """Answers input requests with the callbacks that were given."""

    def __init__(
        self,
        *,
        elicit: Elicit | None = None,
        elicit_url: ElicitUrl | None = None,
        sample: Sample | None = None,
        sample_tools: bool = False,
        roots: Roots | None = None,
    ) -> None:
        self._elicit = elicit
        self._elicit_url = elicit_url
        self._sample = sample
        self._sample_tools = sample_tools
        self._roots = roots
        self.capabilities = self._declared()

    def _declared(self) -> JsonObject:
        declared: JsonObject = {}
        if self._elicit is not None or self._elicit_url is not None:
            modes = {"form": self._elicit, "url": self._elicit_url}
            declared["elicitation"] = {mode: {} for mode, callback in modes.items() if callback is not None}
        if self._sample is not None:
            declared["sampling"] = {"tools": {}} if self._sample_tools else {}
        if self._roots is not None:
            declared["roots"] = {}
        return declared

    async def answer_all(self, requests: Mapping[str, Any]) -> JsonObject:
        """The responses to the questions of one round, by key, without those that are left out."""
        check_count(requests)
        calls = {key: self._call(key, request) for key, request in requests.items()}
        if unanswered := {key: kind for key, (kind, call) in calls.items() if call is None}:
            raise CannotAnswer(unanswered)
        if len(calls) == 1:  # The most common round; it needs no task group.
            ((key, (_, call)),) = calls.items()
            assert call is not None
            answer = await _answered(call, key, requests[key])
            return {} if isinstance(answer, LeftOut) else {key: answer}
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    key: group.create_task(_answered(call, key, requests[key]))
                    for key, (_, call) in calls.items()
                    if call is not None
                }
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        answers = {key: task.result() for key, task in tasks.items()}
        return {key: answer for key, answer in answers.items() if not isinstance(answer, LeftOut)}

    async def answer(self, key: str, request: object) -> JsonObject | LeftOut:
        """The response to one question; servers before 2026 send them one by one."""
        kind, call = self._call(key, request)
        if call is None:
            raise CannotAnswer({key: kind})
        return await _answered(call, key, request)

    def _call(self, key: str, request: object) -> tuple[str, Callable[[], Any] | None]:
        """The kind of a question, and the call that answers it; None if no callback does."""
        import mcp_types

        method, params = read_question(key, request)
        try:
            if method == ELICIT and params.get("mode", "form") == "url":
                return "elicitation by url", _bind(
                    self._elicit_url, mcp_types.ElicitRequestURLParams.model_validate(params)
                )
            if method == ELICIT:
                form = mcp_types.ElicitRequestFormParams.model_validate(params)
                return "elicitation", _bind(self._elicit, form)
            if method == SAMPLE:
                wanted = mcp_types.CreateMessageRequestParams.model_validate(params)
                if not self._sample_tools and (wanted.tools or wanted.tool_choice):
                    return "sampling with tools", None
                return "sampling", _bind(self._sample, wanted)
        except ValidationError as error:
            raise InvalidResult(
                f"The server's ask {key[:100]!r} is malformed: {error.errors()[0]['msg']}"
            ) from None
        return "roots", None if self._roots is None else self._list_roots

    async def _list_roots(self) -> Any:
        roots: Any = self._roots() if callable(self._roots) else self._roots
        if inspect.isawaitable(roots):
            roots = await roots
        if isinstance(roots, str) or not isinstance(roots, Sequence):
            return roots  # It is left out, or what is wrong with it is said where all answers are checked.
        listed: Sequence[Any] = roots  # pyright: ignore[reportUnknownVariableType]  narrowed from Any
        return {"roots": [_root(root) for root in listed]}


def check_count(requests: Sized) -> None:
    """Refuse a round with more than `MOST_ASKS` questions."""
    if len(requests) > MOST_ASKS:
        raise InvalidResult(
            f"The server asks {len(requests)} things at once; at most {MOST_ASKS} are allowed"
        )


def _bind(callback: Callable[[Any], Any] | None, params: Any) -> Callable[[], Any] | None:
    return None if callback is None else lambda: callback(params)


def _root(root: Any) -> Any:
    if isinstance(root, str):
        return {"uri": root}
    return dump(root) if isinstance(root, BaseModel) else root


async def _answered(call: Callable[[], Any], key: str, request: object) -> JsonObject | LeftOut:
    response = call()
    if inspect.isawaitable(response):
        response = await response
    return response if isinstance(response, LeftOut) else check_response(key, request, response)
