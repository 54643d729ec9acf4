"""Which fields of a message does a version not know?

The official types have a model for every message of 2025-11-25; a model drops what its version does not
have. What is missing afterwards came from elsewhere. What 2025-11-25 has and the versions before it lack is
known by its name.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from mcp_types import methods
from pydantic import TypeAdapter

VERSION = "2025-11-25"
OURS = "io.modelcontextprotocol/"
"""What `_meta` keys of the protocol begin with. Of the older era's, none is for a result or a question."""

SINCE_NOVEMBER = frozenset({"icons", "execution", "websiteUrl", "elicitationId", "mode", "tasks"})
SINCE_JUNE = SINCE_NOVEMBER | {"title", "outputSchema", "structuredContent"}
LATER = {VERSION: frozenset[str](), "2025-06-18": SINCE_NOVEMBER, "2025-03-26": SINCE_JUNE}
"""The names of fields that versions got after these."""
OPEN = frozenset({"inputSchema", "outputSchema", "requestedSchema", "structuredContent", "_meta"})
"""Fields that hold what the author put there."""


def later_names(version: str, message: Any) -> set[str]:
    """The names of fields in a message that a version of the older era does not have yet."""
    if isinstance(message, list):
        return {name for item in message for name in later_names(version, item)}
    if not isinstance(message, Mapping):
        return set()
    nested = [later_names(version, value) for key, value in message.items() if key not in OPEN]
    return (LATER[version] & set(message)).union(*nested)


def unknown_in_result(method: str, result: Mapping[str, Any]) -> list[str]:
    """The paths of fields that a result of the older era does not have."""
    model: Any = methods.SERVER_RESULTS[method, VERSION]
    return [*_lost(result, _passed(model, result), "result"), *_meta(result, "result")]


def unknown_in_request(request: Mapping[str, Any]) -> list[str]:
    """The paths of fields that a server's request of the older era does not have."""
    model: Any = methods.SERVER_REQUESTS[request["method"], VERSION]
    return [*_lost(request, _passed(model, request), request["method"]), *_meta(request, request["method"])]


def _passed(model: Any, message: Mapping[str, Any]) -> Any:
    adapter: TypeAdapter[Any] = TypeAdapter(model)
    validated = adapter.validate_python(message, by_name=False)
    return adapter.dump_python(validated, by_alias=True, mode="json", exclude_none=True)


def _lost(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, Mapping):
        for key, value in before.items():
            if not isinstance(after, Mapping) or key not in after:
                yield f"{path}.{key}"
            else:
                yield from _lost(value, after[key], f"{path}.{key}")
    elif isinstance(before, list):
        for number, value in enumerate(before):
            yield from _lost(value, after[number], f"{path}[{number}]")


def _meta(message: Any, path: str) -> Iterator[str]:
    """The protocol's own keys in any `_meta`, which is an open place and keeps everything."""
    if isinstance(message, Mapping):
        for key, value in message.items():
            if key == "_meta":
                yield from (f"{path}._meta.{name}" for name in value if name.startswith(OURS))
            else:
                yield from _meta(value, f"{path}.{key}")
    elif isinstance(message, list):
        for number, value in enumerate(message):
            yield from _meta(value, f"{path}[{number}]")
