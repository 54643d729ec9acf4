"""What authors register: tools, prompts, resources and completions, with their options.

Checks that options go together and that the server has what they need. Knows nothing of requests.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, overload

from ekiden.errors import RegistrationError, UsageError
from ekiden.server.auth.auth import check_scopes
from ekiden.server.handlers import OnceMode, ResumeMode, TaskMode
from ekiden.server.questions.questions import Askable, needed_for
from ekiden.server.registration.catalog import CacheHint
from ekiden.server.registration.completions import Reference
from ekiden.server.registration.options import check_choice, check_seconds, spelled_out
from ekiden.server.registration.prompts import Prompt
from ekiden.server.registration.registry import Registry
from ekiden.server.registration.resources import Resource, is_template
from ekiden.server.registration.tools import CancelledTask, CannotAskMode, Tool
from ekiden.wire.json import JsonObject

if TYPE_CHECKING:  # The official models take 0.3 s to import; code that passes one has imported them.
    from mcp_types import Annotations, Icon, ToolAnnotations

__all__ = ["Authoring"]

F = TypeVar("F", bound=Callable[..., Any])


class Authoring:
    """The part of a `Server` with which handlers are registered."""

    def __init__(
        self,
        registry: Registry,
        *,
        has_store: bool,
        has_tasks_store: bool,
        cannot_ask: CannotAskMode,
        has_auth: bool = False,
    ) -> None:
        self._registry = registry
        check_choice("cannot_ask", cannot_ask, get_args(CannotAskMode))
        self._cannot_ask: CannotAskMode = cannot_ask
        self._has_store = has_store
        self._has_tasks_store = has_tasks_store
        self._has_auth = has_auth

    # Tools

    @overload
    def tool(self, function: F) -> F: ...
    @overload
    def tool(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: "ToolAnnotations | None" = None,
        icons: "Sequence[Icon] | None" = None,
        meta: Mapping[str, Any] | None = None,
        input_schema: Mapping[str, Any] | None = None,
        output_schema: Mapping[str, Any] | None = None,
        structured: bool | None = None,
        asks: Iterable[Askable | Any] = (),
        once: OnceMode = "auto",
        resume: ResumeMode = "replay",
        task: TaskMode = "never",
        on_cancel: Callable[[CancelledTask], Any] | None = None,
        timeout: float | None = None,
        cannot_ask: CannotAskMode | None = None,
        scopes: Sequence[str] = (),
    ) -> Callable[[F], F]: ...
    @spelled_out
    def tool(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Register a function as a tool. The function itself is returned unchanged.

        The name, the description and the schemas come from the function unless they are given.
        `input_schema` and `output_schema` are JSON Schemas passed through verbatim; with an
        `input_schema`, the handler takes the properties as parameters, or all of them as one
        dict if it has a single parameter. `structured=False` sends data as text only.

        `asks` names what the handler will ask for (`"elicitation"`, `"sampling"`, ..., or the types
        of its forms): a client that lacks it is refused before the handler runs. `once=True` lets each
        round run only once, and needs a store; `once=False` remembers no rounds. `resume="parked"`
        keeps the coroutine in memory between rounds, for handlers that cannot be replayed.

        `task` says whether the call can become a task, which needs a store: `"deferred"` when the
        handler calls `ctx.background()`, `"optional"` from the start where the client has tasks,
        `"required"` always. `on_cancel` cleans up after a task that was cancelled.

        `timeout` is how many seconds the handler may work in one round, or in one leg of a task. Waiting for
        an answer does not count. Then the handler is stopped, and the caller gets a result with `isError`.

        `cannot_ask="result"` tells the client's model in words what could not be asked, where the client did
        not declare it; `"error"` answers with error -32021. Without it, what the server was given counts.

        `scopes` are what the caller's access token must grant: others do not see the tool in lists, and their
        calls are answered with 403, so that their clients can ask for more. Needs `Server(auth=...)`.
        """
        return _register(self.add_tool, function, options)

    @functools.partial(spelled_out, like=tool)
    def add_tool(self, function: Callable[..., Any], **options: Any) -> None:
        """Register a tool; the options are those of `tool`. Allowed while the server runs."""
        if options.get("cannot_ask") is None:
            options["cannot_ask"] = self._cannot_ask
        self._registry.tools.add(Tool(function, **self._with_rounds(options)))

    def _with_rounds(self, options: dict[str, Any]) -> dict[str, Any]:
        """Check the options about rounds, and gather them in `rounds`."""
        once, resume = options.pop("once", "auto"), options.pop("resume", "replay")
        task: TaskMode = options.pop("task", "never")
        check_choice("once", once, ("auto", True, False))
        check_choice("resume", resume, get_args(ResumeMode))
        check_choice("task", task, get_args(TaskMode))
        if once is True and not self._has_store:
            raise RegistrationError("once=True needs a store: Server(..., store='sqlite:///rounds.db')")
        if once is True and resume == "parked":
            raise RegistrationError("a parked handler is resumed once anyway: leave once=True out")
        if task != "never" and not self._has_tasks_store:
            raise RegistrationError(f"task={task!r} needs a store: Server(..., store='sqlite:///tasks.db')")
        if task != "never" and resume == "parked":
            raise RegistrationError("a task is replayed, never parked: leave resume='parked' out")
        timeout = options.pop("timeout", None)
        check_seconds("timeout", timeout)
        if timeout is not None and resume == "parked":
            raise RegistrationError(
                "a parked handler also waits for answers while it is in memory, so timeout= cannot be used: "
                "write `async with asyncio.timeout(...)` around what may take too long"
            )
        needs = _needs(options.pop("asks", ()))
        rounds = {"once": once, "resume": resume, "needs": needs, "task": task, "timeout": timeout}
        rounds["scopes"] = check_scopes(options.pop("scopes", ()))
        if rounds["scopes"] and not self._has_auth:
            raise RegistrationError("scopes= needs Server(auth=Auth(...)): nothing says what a caller may do")
        return {**options, "rounds": rounds}

    def remove_tool(self, name: str) -> None:
        """Remove a tool. Calls that are running go on."""
        self._registry.tools.remove(name)

    # Prompts

    @overload
    def prompt(self, function: F) -> F: ...
    @overload
    def prompt(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: "Sequence[Icon] | None" = None,
        meta: Mapping[str, Any] | None = None,
        asks: Iterable[Askable | Any] = (),
        once: OnceMode = "auto",
        resume: ResumeMode = "replay",
        scopes: Sequence[str] = (),
    ) -> Callable[[F], F]: ...
    @spelled_out
    def prompt(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Register a function as a prompt. It returns text, messages, or a `GetPromptResult`."""
        return _register(self.add_prompt, function, options)

    @functools.partial(spelled_out, like=prompt)
    def add_prompt(self, function: Callable[..., Any], **options: Any) -> None:
        """Register a prompt; the options are those of `prompt`. Allowed while the server runs."""
        self._registry.prompts.add(Prompt(function, **self._with_rounds(options)))

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt."""
        self._registry.prompts.remove(name)

    # Resources

    @spelled_out
    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: "Annotations | None" = None,
        icons: "Sequence[Icon] | None" = None,
        meta: Mapping[str, Any] | None = None,
        cache: CacheHint | None = None,
        asks: Iterable[Askable | Any] = (),
        once: OnceMode = "auto",
        resume: ResumeMode = "replay",
        scopes: Sequence[str] = (),
    ) -> Callable[[F], F]:
        """Register a function as a resource, or as a template if `uri` has `{variables}`.

        It returns text, bytes, data (sent as JSON), contents, or a `ReadResourceResult`.
        """
        options: dict[str, Any] = {
            "name": name,
            "title": title,
            "description": description,
            "mime_type": mime_type,
            "size": size,
            "annotations": annotations,
            "icons": icons,
            "meta": meta,
            "cache": cache,
            "asks": asks,
            "once": once,
            "resume": resume,
            "scopes": scopes,
        }

        def register(function: F) -> F:
            self.add_resource(uri, function, **options)
            return function

        return register

    @functools.partial(spelled_out, like=resource)
    def add_resource(self, uri: str, function: Callable[..., Any], **options: Any) -> None:
        """Register a resource; the options are those of `resource`. Allowed while the server runs."""
        catalog = self._registry.templates if is_template(uri) else self._registry.resources
        catalog.add(Resource(uri, function, **self._with_rounds(options)))

    def remove_resource(self, uri: str) -> None:
        """Remove a resource or a template."""
        catalog = self._registry.templates if is_template(uri) else self._registry.resources
        catalog.remove(uri)

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that watch `uri` that its contents changed. Callable from any thread."""
        self._registry.hub.resource_updated(uri)

    # Completions

    @spelled_out
    def completion(
        self, *, argument: str, prompt: str | None = None, resource: str | None = None
    ) -> Callable[[F], F]:
        """Register a function that suggests values for an argument of a prompt or resource template.

        It is called with `value`, what was typed so far, and, if it has such a parameter, `arguments`,
        the values of the other arguments. It returns the suggestions, the best first.
        """
        if (prompt is None) == (resource is None):
            raise UsageError("completion() needs either prompt= or resource=")
        reference: Reference = (
            ("ref/prompt", prompt) if prompt is not None else ("ref/resource", resource or "")
        )

        def register(function: F) -> F:
            self._registry.completions.add(reference, argument, function)
            self._registry.changed()
            return function

        return register


def _needs(asks: object) -> tuple[JsonObject, ...]:
    if isinstance(asks, str | type) or not isinstance(asks, Iterable):
        shown = repr(asks) if isinstance(asks, str) else getattr(asks, "__name__", repr(asks))
        raise RegistrationError(f"asks= is a list: write asks=[{shown}]")
    return tuple(needed_for(asked) for asked in cast("Iterable[object]", asks))


def _register(add: Callable[..., None], function: object, options: dict[str, Any]) -> Any:
    """Support both `@server.tool` and `@server.tool(...)`."""
    if function is not None:
        if not callable(function):
            what = add.__name__.removeprefix("add_")
            hint = f": write @server.{what}(name={function!r})" if isinstance(function, str) else ""
            raise RegistrationError(f"@server.{what} takes its options by name, not {function!r}{hint}")
        add(function, **options)
        return function

    def register(decorated: F) -> F:
        add(decorated, **options)
        return decorated

    return register
