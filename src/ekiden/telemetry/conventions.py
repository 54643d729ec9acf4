"""What spans are called and what they say, by OpenTelemetry's semantic conventions for MCP."""

from typing import Any, Final

__all__ = ["NAMED_TARGETS", "TARGETS", "describe", "title"]

TARGETS: Final = {
    "tools/call": "gen_ai.tool.name",
    "prompts/get": "gen_ai.prompt.name",
    "resources/read": "mcp.resource.uri",
}
"""The attribute that says what a request addresses, by its method."""

NAMED_TARGETS: Final = {method: TARGETS[method] for method in ("tools/call", "prompts/get")}
"""Those that metrics have, too: there are too many URIs."""


def title(method: str, name: str | None) -> str:
    """The name of a request's span: the method, and the tool or prompt.

    Not the URI, nor the id of a task: there are too many for names of spans.
    """
    return f"{method} {name}" if name is not None and method in ("tools/call", "prompts/get") else method


def describe(method: str, name: str | None) -> dict[str, Any]:
    """The attributes that say what a request is."""
    attributes: dict[str, Any] = {"mcp.method.name": method}
    if name is not None and (target := TARGETS.get(method)) is not None:
        attributes[target] = name
    if method == "tools/call":
        attributes["gen_ai.operation.name"] = "execute_tool"
    return attributes
