"""What a handler returned, as the protocol's content.

Text, content blocks and lists of them are content. Anything else is data: it becomes
`structuredContent`, and its JSON becomes a text block for clients that read only those.
The official models are recognised without importing them: a handler that returns one has imported them.
"""

import base64
import sys
import types
import typing
from collections.abc import Iterable
from types import NoneType
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter

from ekiden.errors import UsageError
from ekiden.server.questions.media import Media
from ekiden.wire.json import JsonObject, encode

__all__ = [
    "check_progress",
    "content_blocks",
    "dump",
    "is_content_hint",
    "loggable",
    "prompt_messages",
    "resource_contents",
    "to_json",
]

_BLOCKS: Final = ("TextContent", "ImageContent", "AudioContent", "ResourceLink", "EmbeddedResource")

_NUMBER: Final = (int, float)

_any: Final[TypeAdapter[Any]] = TypeAdapter(Any)


def dump(model: BaseModel) -> JsonObject:
    """A protocol model as it goes on the wire: absent fields are absent, not null."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def to_json(value: object) -> Any:
    """Any data of the author's as JSON types: models, dataclasses, dates, enums."""
    return _any.dump_python(value, mode="json", by_alias=True)


def loggable(data: object) -> Any:
    """What a handler logs, as JSON types."""
    try:
        return to_json(data)
    except ValueError as error:
        raise UsageError(f"ctx.log() takes text or data, such as a model or a dict: {error}") from None


def check_progress(progress: object, total: object, message: object) -> None:
    """Refuse progress that the protocol cannot say: a client may drop the whole connection for it."""
    for value, wanted in ((progress, _NUMBER), (total, (*_NUMBER, NoneType)), (message, (str, NoneType))):
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise UsageError(
                "ctx.progress(progress, total, message) takes two numbers and a text, "
                f"not {progress!r}, {total!r}, {message!r}"
            )


def _official(*names: str) -> tuple[type, ...]:
    module = sys.modules.get("mcp_types")
    return () if module is None else tuple(getattr(module, name) for name in names)


def is_block(value: object) -> bool:
    """Whether `value` is a content block: one of the official models, or a helper of ours."""
    return isinstance(value, (Media, *_official(*_BLOCKS)))


def is_contents(value: object) -> bool:
    """Whether `value` is the contents of a resource: one of the official models, or a helper of ours."""
    return isinstance(value, (Media, *_official("TextResourceContents", "BlobResourceContents")))


def _is_list(value: object) -> typing.TypeGuard[list[Any]]:
    return isinstance(value, list | tuple)


def content_blocks(value: Any) -> list[JsonObject] | None:
    """`value` as content, or None if it is data."""
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if is_block(value):
        return [value.block() if isinstance(value, Media) else dump(value)]
    if _is_list(value) and any(is_block(item) for item in value):
        return [block for item in value for block in _item_blocks(item)]
    return None


def _item_blocks(item: object) -> list[JsonObject]:
    blocks = content_blocks(item)
    return [text_block(to_json(item))] if blocks is None else blocks


def text_block(data: object) -> JsonObject:
    """JSON data as a text block."""
    return {"type": "text", "text": encode(data).decode()}


def is_content_hint(hint: object) -> bool:
    """Whether a return annotation promises content rather than data, and so has no output schema."""
    if hint is None or hint is type(None) or hint is str or hint is Any:
        return True
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is typing.Annotated:
        return is_content_hint(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return all(is_content_hint(argument) for argument in arguments)
    if origin in (list, tuple) or (isinstance(origin, type) and issubclass(origin, Iterable)):
        return any(_mentions_block(argument) for argument in arguments)
    return isinstance(hint, type) and issubclass(hint, (Media, *_official(*_BLOCKS, "CallToolResult")))


def _mentions_block(hint: object) -> bool:
    if isinstance(hint, type):
        return issubclass(hint, (Media, *_official(*_BLOCKS)))
    return any(_mentions_block(argument) for argument in typing.get_args(hint))


def prompt_messages(value: object) -> list[JsonObject]:
    """What a prompt returned, as messages; text and blocks become messages of the user."""
    if _is_list(value):
        return [message for item in value for message in prompt_messages(item)]
    if isinstance(value, BaseModel) and isinstance(value, _official("PromptMessage")):
        return [dump(value)]
    blocks = content_blocks(value)
    if blocks is None:
        blocks = [text_block(to_json(value))]
    return [{"role": "user", "content": block} for block in blocks]


def resource_contents(value: Any, uri: str, mime_type: str | None) -> list[JsonObject]:
    """What a resource returned, as contents of `uri`; bytes become a blob, data becomes JSON text."""
    if is_contents(value):
        return [value.contents(uri) if isinstance(value, Media) else dump(value)]
    if _is_list(value) and any(is_contents(item) for item in value):
        return [content for item in value for content in resource_contents(item, uri, mime_type)]
    if isinstance(value, bytes):
        blob = base64.b64encode(value).decode()
        return [{"uri": uri, "mimeType": mime_type or "application/octet-stream", "blob": blob}]
    if isinstance(value, str):
        return [{"uri": uri, "mimeType": mime_type or "text/plain", "text": value}]
    text = encode(to_json(value)).decode()
    return [{"uri": uri, "mimeType": mime_type or "application/json", "text": text}]
