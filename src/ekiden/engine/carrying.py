"""Handlers that another server has defined, and what their own context is answered with.

A `Carrier` registers them in an ekiden server: their definitions go out as they are, they check their own
arguments, and they return results as the wire has them. `ask`, `progress`, `log` and `answers_by_hand` do for
a foreign context what `ekiden.Context` does for ours.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ekiden.errors import InvalidParams
from ekiden.rounds.asks import ELICIT, LIST_ROOTS, SAMPLE
from ekiden.server.context import Context
from ekiden.server.handlers import ResumeMode
from ekiden.server.registration.carried import CarriedPrompt, CarriedResource, CarriedTool, Matcher
from ekiden.server.registration.catalog import Catalog
from ekiden.server.registration.extensions import OfferedExtension
from ekiden.server.server import Server
from ekiden.wire.json import JsonObject

__all__ = ["Carrier", "Matcher", "ResumeMode", "answers_by_hand", "ask"]


class _Entry(Protocol):
    @property
    def key(self) -> str: ...
    @property
    def definition(self) -> JsonObject: ...


class Carrier:
    """Registers handlers of another server in an ekiden server.

    Each kind is given whole: what is not there any more is removed, what is new or has another definition is
    registered, and clients that listen are told. `resume` is that of `Server.tool`, for all of them.
    """

    def __init__(self, server: Server, *, resume: ResumeMode = "replay") -> None:
        self._registry = server.endpoint.registry
        self._registry.declare_all()  # Servers of other SDKs answer every list, also one that is empty.
        self._resume: ResumeMode = resume

    def declare(self, identifier: str, settings: JsonObject) -> None:
        """Declare an extension that has no methods of its own, to clients of 2026-07-28."""
        self._registry.extensions.add(
            OfferedExtension(identifier=identifier, settings=settings, in_sessions=False)
        )

    def tools(self, given: Iterable[tuple[JsonObject, Callable[..., Any], bool]]) -> None:
        """Register tools: a definition, the function, and whether it is called with a context."""
        made = [
            CarriedTool(definition, call, context=context, resume=self._resume)
            for definition, call, context in given
        ]
        _replace(self._registry.tools, made)

    def prompts(self, given: Iterable[tuple[JsonObject, Callable[..., Any]]]) -> None:
        """Register prompts."""
        made = [CarriedPrompt(definition, call, resume=self._resume) for definition, call in given]
        _replace(self._registry.prompts, made)

    def resources(self, given: Iterable[tuple[JsonObject, Callable[..., Any]]]) -> None:
        """Register resources."""
        made = [CarriedResource(definition, call, resume=self._resume) for definition, call in given]
        _replace(self._registry.resources, made)

    def templates(self, given: Iterable[tuple[JsonObject, Callable[..., Any], Matcher]]) -> None:
        """Register resource templates; a `Matcher` says which URIs fit one."""
        made = [
            CarriedResource(definition, call, template=template, resume=self._resume)
            for definition, call, template in given
        ]
        _replace(self._registry.templates, made)

    def completion(self, call: Callable[..., Any] | None) -> None:
        """Register the function that completes arguments, `call(params=..., ctx=...)`."""
        self._registry.completions.carried = call
        self._registry.changed()


def _replace(catalog: Catalog[Any], entries: Iterable[_Entry]) -> None:
    """Make a catalog hold exactly these entries, in this order unless only some were added or removed."""
    wanted = {entry.key: entry for entry in entries}
    for entry in list(catalog):
        new = wanted.get(entry.key)
        if new is not None and new.definition == entry.definition:
            entry.handler = new.handler  # type: ignore[attr-defined]
            del wanted[entry.key]
        else:
            catalog.remove(entry.key)
    for entry in wanted.values():
        catalog.add(entry)


async def ask(ctx: Context[Any], method: str, params: Mapping[str, Any] | None) -> JsonObject:
    """Ask what a request of the wire asks: an elicitation, a sample or the roots. The result as it came.

    Clients of 2026-07-28 are asked by the end of a round, those of 2025 through their session.
    """
    if method not in (ELICIT, SAMPLE, LIST_ROOTS):
        raise InvalidParams(f"{method} is not a question: it must be one of {ELICIT}, {SAMPLE}, {LIST_ROOTS}")
    if method == LIST_ROOTS:
        return await ctx.ask({"method": method})
    # The id of a page is the transport's business.
    said = {name: value for name, value in (params or {}).items() if name != "elicitationId"}
    return await ctx.ask({"method": method, "params": said})


def answers_by_hand(ctx: Context[Any]) -> tuple[dict[str, Any], str | None]:
    """The answers and the state of a handler that returns `InputRequired`, as they came.

    Unlike `ctx.input_responses`, to look at them does not commit the handler to that way of asking.
    """
    return ctx.raw_responses(), ctx.manual_state
