"""Whether a response answers the question it is for, found out before it is sent.

A response must be a result of the question's kind. What was filled into a form must fit the form's schema, a
page has no content, a model may only use tools that it was offered. A question that is not to be answered has
`LeftOut()` in place of its response.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pydantic import BaseModel, ValidationError

from ekiden.client.scripted import question_text
from ekiden.errors import InvalidResult, ParseError, WrongAnswer
from ekiden.rounds.asks import ELICIT, LIST_ROOTS, SAMPLE
from ekiden.signals import UnusableSchema
from ekiden.transports.client.complaints import Complaints
from ekiden.wire.json import ENCODE_ERRORS, JsonObject, decode, encode, is_array, is_object
from ekiden.wire.schemas.validator import json_validator

if TYPE_CHECKING:
    from mcp_types import CreateMessageResultWithTools, ElicitResult

__all__ = [
    "LeftOut",
    "check_response",
    "check_responses",
    "dump",
    "read_question",
]

_complain = Complaints(logging.getLogger(__name__))

_MOST_SCHEMA: Final = 8192
"""The size of a schema whose validator is kept."""


class LeftOut(msgspec.Struct, frozen=True):
    """In place of a response: this question is left out on purpose.

    Nothing is sent for it. The server asks it again, or does without; a task goes on waiting for it.
    """


def check_responses(requests: Mapping[str, Any], responses: Mapping[str, Any]) -> JsonObject:
    """The responses as they are sent. Raises `WrongAnswer` for the first that must not be.

    There must be one for every question, and none for anything else.
    """
    for key in responses:
        if key not in requests:
            asked = f"asked are {', '.join(map(repr, requests))}" if requests else "nothing is"
            raise WrongAnswer(key, None, f"it is not asked; {asked}")
    checked: JsonObject = {}
    for key, request in requests.items():
        if key not in responses:
            read_question(key, request)
            raise _wrong(key, request, "there is no answer; to leave a question out, give LeftOut() for it")
        if not isinstance(responses[key], LeftOut):
            checked[key] = check_response(key, request, responses[key])
    return checked


def check_response(key: str, request: object, response: object) -> JsonObject:
    """One response as it is sent; an official model is spelled as JSON."""
    method, params = read_question(key, request)
    if not isinstance(response, BaseModel) and not is_object(response):
        raise _wrong(key, request, f"it must be a dict or an official result, not {_named(response)}")
    try:
        answer: JsonObject = decode(encode(dump(response)))  # What is checked is what will be sent.
    except (*ENCODE_ERRORS, ParseError) as error:  # It may be too deep, or a number too large.
        raise _wrong(key, request, f"it cannot be written as JSON: {error}") from None
    if (problem := _problem(method, params, answer)) is not None:
        raise _wrong(key, request, problem)
    return answer


def read_question(key: str, request: object) -> tuple[str, JsonObject]:
    """The method and the parameters of an input request."""
    method = request.get("method") if is_object(request) else None
    params: Any = (request.get("params") or {}) if is_object(request) else {}
    if not is_object(params):
        raise InvalidResult(f"The server's ask {key[:100]!r} is malformed: its params are not an object")
    if method not in (ELICIT, SAMPLE, LIST_ROOTS):
        raise InvalidResult(f"The server asks something unknown: {str(method)[:100]!r}")
    return method, params


def dump(result: BaseModel | JsonObject) -> JsonObject:
    """A result as JSON, without the tag that it has only as a result of its own."""
    if not isinstance(result, BaseModel):
        return result
    dumped = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    dumped.pop("resultType", None)
    return dumped


def _wrong(key: str, request: Any, problem: str) -> WrongAnswer:
    return WrongAnswer(key, question_text(request), problem)


def _named(response: object) -> str:
    return "None" if response is None else f"of type {type(response).__name__}"


def _problem(method: str, params: JsonObject, answer: JsonObject) -> str | None:
    """Why this is not an answer to the question; None if it is one."""
    import mcp_types

    try:
        if method == ELICIT:
            result = mcp_types.ElicitResult.model_validate(answer, by_name=False)
            return _problem_of_elicitation(params, result)
        if method == SAMPLE:
            reply = mcp_types.CreateMessageResultWithTools.model_validate(answer, by_name=False)
            return _problem_of_sample(params, reply)
        mcp_types.ListRootsResult.model_validate(answer, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return None


def _problem_of_elicitation(params: Mapping[str, Any], result: ElicitResult) -> str | None:
    if result.action != "accept":
        # Whoever declines does not want the content to be sent.
        return f"there is content although the action is {result.action}" if result.content else None
    if params.get("mode", "form") == "url":
        return "there is content although a page was to be opened" if result.content else None
    schema = encode(params.get("requestedSchema"))
    problems = _remembered(schema) if len(schema) <= _MOST_SCHEMA else _validator(schema)
    return problems(result.content or {})


def _validator(schema: bytes) -> Callable[[Any], str | None]:
    try:
        return json_validator(decode(schema), formats=True, trusted=False, whole="content")
    except UnusableSchema as error:
        _complain("The schema of a form cannot be used, its answer is sent unchecked: %s", error)
        return lambda _: None


_remembered = functools.lru_cache(maxsize=64)(_validator)
"""The same, for forms that come again and again: to compile one takes longer than all the rest of a check."""


def _problem_of_sample(params: Mapping[str, Any], reply: CreateMessageResultWithTools) -> str | None:
    tools = params.get("tools")
    offered = [tool.get("name") for tool in tools if is_object(tool)] if is_array(tools) else []
    for block in reply.content_as_list:
        if block.type == "tool_use" and block.name not in offered:
            return f"the model uses the tool {block.name!r}, which it was not offered"
    return None
