"""Results as typed values: as the official models, and `structuredContent` as a type of the caller's."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from ekiden.errors import InvalidResult
from ekiden.wire.json import JsonObject, is_object

if TYPE_CHECKING:
    from mcp_types import CallToolResult

__all__ = ["read_questions", "read_structured", "typed"]

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)


def typed(model: type[Model], value: object) -> Model:
    """A value from the server as one of the official models."""
    try:
        return model.model_validate(value, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidResult(f"The server's {model.__name__} is malformed: {where}: {first['msg']}") from None


def read_questions(
    result: Mapping[str, Any], most_state: int, what: str
) -> tuple[dict[str, JsonObject], str | None]:
    """What an interim result asks, by key, and its `requestState`, which may have so many characters."""
    requests, state = result.get("inputRequests", {}), result.get("requestState")
    if not is_object(requests) or not all(is_object(request) for request in requests.values()):
        raise InvalidResult(f"The server's {what} is malformed: its questions are not objects")
    if not (state is None or isinstance(state, str)):
        raise InvalidResult(f"The server's {what} is malformed: its requestState is not a string")
    if state is not None and len(state) > most_state:
        raise InvalidResult(
            f"The server's state has {len(state)} characters; at most {most_state} are allowed"
        )
    return requests, state


def read_structured(result: CallToolResult, result_type: type[T], name: str) -> T:
    """The structured content of a tool's result as `result_type`."""
    if result.is_error:
        text = " ".join(block.text for block in result.content if block.type == "text")
        raise InvalidResult(f"Tool {name!r} failed: {text}")
    adapter, content = TypeAdapter(result_type), result.structured_content
    try:
        return adapter.validate_python(content)
    except ValidationError as error:
        if is_object(content) and content.keys() == {"result"}:
            # Servers of 2025 wrap what is not an object.
            with contextlib.suppress(ValidationError):
                return adapter.validate_python(content["result"])
        raise InvalidResult(f"Tool {name!r} did not return {result_type}: {error}") from None
