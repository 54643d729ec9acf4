"""Entries of the catalogs for what another server answers: listed here, under a name of this server."""

from collections.abc import Callable
from typing import NoReturn

from ekiden.server.handlers import Handler
from ekiden.server.middleware import Run
from ekiden.server.registration.prompts import Prompt
from ekiden.server.registration.resources import Resource
from ekiden.server.registration.templates import Matches
from ekiden.server.registration.tools import Tool
from ekiden.wire.json import JsonObject, is_object

__all__ = ["RoutedPrompt", "RoutedResource", "RoutedTool", "UnlistedResources"]


def _not_here() -> NoReturn:
    """The function of a handler that is never called."""
    raise AssertionError("another server answers this")


class RoutedTool(Tool):
    """A tool of another server."""

    def __init__(self, tool: Tool, name: str, answer: Run, located: Callable[[str], str]) -> None:
        self.key, self.title = name, f"Tool {name!r}"
        self.definition = _with_page({**tool.definition, "name": name}, located)
        self.handler = Handler(_not_here, scopes=tool.scopes)
        self.scopes = tool.scopes
        self.on_cancel = None
        self.tells_in_words = False
        self.elsewhere = answer
        self._support = tool.task_support()

    def task_support(self) -> str | None:
        """As the other server says."""
        return self._support


def _with_page(definition: JsonObject, located: Callable[[str], str]) -> JsonObject:
    """The definition of a tool whose page for apps is where it is found here."""
    meta = definition.get("_meta")
    page = meta.get("ui") if is_object(meta) else None
    if not is_object(meta) or not is_object(page) or not isinstance(uri := page.get("resourceUri"), str):
        return definition
    return {**definition, "_meta": {**meta, "ui": {**page, "resourceUri": located(uri)}}}


class RoutedPrompt(Prompt):
    """A prompt of another server."""

    def __init__(self, prompt: Prompt, name: str, answer: Run) -> None:
        self.key = name
        self.definition = {**prompt.definition, "name": name}
        self.handler = Handler(_not_here, scopes=prompt.scopes)
        self.scopes = prompt.scopes
        self.elsewhere = self.completes = answer


class RoutedResource(Resource):
    """A resource or a template of another server."""

    def __init__(self, resource: Resource, uri: str, template: Matches | None, answer: Run) -> None:
        self.key = uri
        field = "uri" if template is None else "uriTemplate"
        self.definition = {**resource.definition, field: uri}
        self.handler = Handler(_not_here, scopes=resource.scopes)
        self.scopes = resource.scopes
        self.template = template
        self.elsewhere = self.completes = answer


class UnlistedResources(Resource):
    """All URIs of another server that are in no list."""

    def __init__(self, what: Matches, answer: Run) -> None:
        self.key = ""
        self.definition = {}
        self.handler = Handler(_not_here)
        self.scopes = frozenset[str]()
        self.template = what
        self.elsewhere = answer
