"""Results as typed values: as the official models, and `structuredContent` as a type of the caller's."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from ekiden.errors import InvalidResult

if TYPE_CHECKING:
    from mcp_types import CallToolResult

__all__ = ["read_structured", "typed"]

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


def read_structured(result: CallToolResult, result_type: type[T], name: str) -> T:
    """The structured content of a tool's result as `result_type`."""
    if result.is_error:
        text = " ".join(block.text for block in result.content if block.type == "text")
        raise InvalidResult(f"Tool {name!r} failed: {text}")
    try:
        return TypeAdapter(result_type).validate_python(result.structured_content)
    except ValidationError as error:
        raise InvalidResult(f"Tool {name!r} did not return {result_type}: {error}") from None
