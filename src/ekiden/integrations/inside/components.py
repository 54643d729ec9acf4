"""Durable handlers as FastMCP knows components, so that its middleware, transforms and mounts see them."""

import base64
import logging
from typing import Any, Final

import mcp_types as types
from fastmcp.exceptions import FastMCPError, ToolError
from fastmcp.prompts.base import InputRequiredPromptResult, Message, Prompt, PromptArgument, PromptResult
from fastmcp.resources.base import InputRequiredResourceResult, Resource, ResourceContent, ResourceResult
from fastmcp.resources.template import ResourceTemplate
from fastmcp.tools.base import InputRequiredToolResult, Tool, ToolResult
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, PrivateAttr

from ekiden.engine import Kind
from ekiden.integrations.inside import fastmcp_parts as parts
from ekiden.integrations.inside.calls import Calls, HostContext, passage

__all__ = ["DurablePrompt", "DurableResource", "DurableTemplate", "DurableTool"]

_MODERN: Final = "2026-07-28"


class _Handler:
    """What a component does with its calls, and how it is listed."""

    def __init__(self, calls: Calls, kind: Kind, field: str, definition: dict[str, Any]) -> None:
        self._definition = definition
        self.key: str = definition[field]
        self._calls = calls
        self._kind: Kind = kind
        self._field = field

    def listed(self, shown_as: str) -> dict[str, Any]:
        """The definition for the client that asks for the list, under the name that it has in this list."""
        current = parts.request()
        version = _MODERN if current is None else current.protocol_version
        definition = self._calls.engine.definition(self._kind, self.key, version)
        return {**(definition or self._definition), self._field: shown_as}

    async def perform(self, method: str, **params: Any) -> dict[str, Any]:
        """Answer the call that is being served."""
        current: HostContext | None = parts.request()
        if current is None or current.request_id is None:
            raise ToolError(f"{self.key!r} is durable: only clients can call it, not the server itself")
        # The name is ours, whatever a transform or a mount calls it.
        try:
            return await self._calls.perform(current, method, {**(current.params or {}), **params})
        except MCPError as error:
            if passage.get() is None:
                raise
            # Our boundary answers with the error itself. FastMCP would log this one with a trace.
            raise FastMCPError(error.message, log_level=logging.DEBUG) from error


def _asked(result: dict[str, Any]) -> types.InputRequiredResult | None:
    if result.get("resultType") != "input_required":
        return None
    return types.InputRequiredResult.model_validate(result)


def _fields(definition: dict[str, Any], *names: str) -> dict[str, Any]:
    wire = {"mime_type": "mimeType", "meta": "_meta"}
    return {name: definition[wire.get(name, name)] for name in names if wire.get(name, name) in definition}


class DurableTool(Tool):
    """A durable tool."""

    _handler: _Handler = PrivateAttr()

    @classmethod
    def of(cls, calls: Calls, definition: dict[str, Any]) -> "DurableTool":
        """The tool with this definition."""
        tool = cls(
            name=definition["name"],
            parameters=definition["inputSchema"],
            output_schema=definition.get("outputSchema"),
            **_fields(definition, "title", "description", "annotations", "icons", "meta"),
        )
        tool._handler = _Handler(calls, "tools", "name", definition)
        return tool

    def to_mcp_tool(self, **overrides: Any) -> types.Tool:
        """The tool as ekiden defines it."""
        return types.Tool.model_validate(self._handler.listed(overrides.get("name", self.name)))

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Answer a call."""
        result = await self._handler.perform("tools/call", name=self._handler.key, arguments=arguments)
        if (asked := _asked(result)) is not None:
            return InputRequiredToolResult(asked)
        return parts.exact_result(types.CallToolResult.model_validate(result))


class _ExactPrompt(PromptResult):
    """A result that goes out as it is. Middleware sees its messages."""

    exact: types.GetPromptResult

    def __init__(self, exact: types.GetPromptResult) -> None:
        messages = [Message(each.content, role=each.role) for each in exact.messages]
        # The constructor of the class above makes messages of text, and has no place for ours.
        BaseModel.__init__(self, messages=messages, description=exact.description, exact=exact)

    def to_mcp_prompt_result(self) -> types.GetPromptResult:
        return self.exact


class DurablePrompt(Prompt):
    """A durable prompt."""

    _handler: _Handler = PrivateAttr()

    @classmethod
    def of(cls, calls: Calls, definition: dict[str, Any]) -> "DurablePrompt":
        """The prompt with this definition."""
        arguments = [PromptArgument(**argument) for argument in definition.get("arguments", ())]
        prompt = cls(
            name=definition["name"],
            arguments=arguments,
            **_fields(definition, "title", "description", "icons", "meta"),
        )
        prompt._handler = _Handler(calls, "prompts", "name", definition)
        return prompt

    def to_mcp_prompt(self, **overrides: Any) -> types.Prompt:
        """The prompt as ekiden defines it."""
        return types.Prompt.model_validate(self._handler.listed(overrides.get("name", self.name)))

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        """Answer a request for the prompt."""
        name = self._handler.key
        result = await self._handler.perform("prompts/get", name=name, arguments=arguments or {})
        if (asked := _asked(result)) is not None:
            return InputRequiredPromptResult(asked)
        return _ExactPrompt(types.GetPromptResult.model_validate(result))


class _ExactResource(ResourceResult):
    """A result that goes out as it is. Middleware sees its contents."""

    exact: types.ReadResourceResult

    def __init__(self, exact: types.ReadResourceResult) -> None:
        contents = [_content(each) for each in exact.contents]
        BaseModel.__init__(self, contents=contents, exact=exact)

    def to_mcp_result(self, uri: Any) -> types.ReadResourceResult:
        return self.exact


def _content(part: types.TextResourceContents | types.BlobResourceContents) -> ResourceContent:
    if isinstance(part, types.TextResourceContents):
        return ResourceContent(part.text, mime_type=part.mime_type)
    return ResourceContent(base64.b64decode(part.blob), mime_type=part.mime_type)


async def _read(handler: _Handler, uri: str) -> ResourceResult:
    result = await handler.perform("resources/read", uri=uri)
    if (asked := _asked(result)) is not None:
        return InputRequiredResourceResult(asked)
    return _ExactResource(types.ReadResourceResult.model_validate(result))


class DurableResource(Resource):
    """A durable resource of one URI."""

    _handler: _Handler = PrivateAttr()

    @classmethod
    def of(cls, calls: Calls, definition: dict[str, Any]) -> "DurableResource":
        """The resource with this definition."""
        resource = cls(
            uri=definition["uri"],
            name=definition["name"],
            **_fields(definition, "title", "description", "mime_type", "annotations", "icons", "meta"),
        )
        resource._handler = _Handler(calls, "resources", "uri", definition)
        return resource

    def to_mcp_resource(self, **overrides: Any) -> types.Resource:
        """The resource as ekiden defines it."""
        return types.Resource.model_validate(self._handler.listed(str(overrides.get("uri", self.uri))))

    async def read(self) -> ResourceResult:
        """Answer a read."""
        return await _read(self._handler, self._handler.key)


class DurableTemplate(ResourceTemplate):
    """Durable resources whose URIs fit a template."""

    _handler: _Handler = PrivateAttr()

    @classmethod
    def of(cls, calls: Calls, definition: dict[str, Any]) -> "DurableTemplate":
        """The template with this definition."""
        template = cls(
            uri_template=definition["uriTemplate"],
            name=definition["name"],
            parameters={},
            **_fields(definition, "title", "description", "mime_type", "annotations", "icons", "meta"),
        )
        template._handler = _Handler(calls, "resourceTemplates", "uriTemplate", definition)
        return template

    def to_mcp_template(self, **overrides: Any) -> types.ResourceTemplate:
        """The template as ekiden defines it."""
        shown_as = overrides.get("uriTemplate", overrides.get("uri_template", self.uri_template))
        return types.ResourceTemplate.model_validate(self._handler.listed(shown_as))

    async def _read(self, uri: str, params: dict[str, Any]) -> ResourceResult:
        """Answer a read."""
        return await _read(self._handler, uri)
