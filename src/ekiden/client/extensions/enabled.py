"""The extensions of one client: what they declare, and what they add. Tasks are the first of them."""

import functools
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ekiden.client.extensions.extension import ClientExtension, Heard, Intercept, Interrupted, SendRequest
from ekiden.client.sessions.session import ClientRequest
from ekiden.errors import InvalidResult, RegistrationError
from ekiden.wire.json import JsonObject, is_object
from ekiden.wire.tasks import EXTENSION, RESULT_TYPE

__all__ = ["EnabledExtensions"]

_log = logging.getLogger(__name__)


class EnabledExtensions:
    """The extensions of one client."""

    def __init__(self, extensions: Sequence[ClientExtension] = (), *, tasks: bool = True) -> None:
        self._extensions = tuple(extensions)
        self.tasks = tasks
        """Whether calls may become tasks."""
        ours = (EXTENSION, f"type {RESULT_TYPE}") if tasks else ()
        self._owners: dict[str, ClientExtension | None] = dict.fromkeys(ours)
        """Who has an identifier, a result type or a notification; None for tasks, which are our own."""
        self._heard: dict[str, Heard] = {}
        self._states: dict[str, object] = {}
        """What the lifespans yielded, by identifier."""
        for extension in self._extensions:
            given: Any = extension
            if not isinstance(given, ClientExtension):
                raise RegistrationError(f"extensions= takes `ClientExtension` objects, not {given!r}")
            names = [extension.identifier, *(f"type {name}" for name in extension.finishers)]
            names += [f"notification {name}" for name in extension.heard]
            for name in names:
                if name in self._owners:
                    raise RegistrationError(f"extension {extension.identifier!r}: {name!r} is taken already")
                self._owners[name] = extension
            self._heard.update(extension.heard)

    def capabilities(self, *, handshake: bool = False) -> JsonObject:
        """The `extensions` capability. In a handshake tasks are not an extension."""
        declared: JsonObject = {EXTENSION: {}} if self.tasks and not handshake else {}
        return declared | {extension.identifier: extension.settings for extension in self._extensions}

    def know(self, result_type: object) -> bool:
        """Whether calls may be answered with results of this type."""
        return f"type {result_type}" in self._owners

    async def finish(self, call: Interrupted) -> JsonObject:
        """The final result of a call that was answered with a result of an author's extension."""
        kind = str(call.result.get("resultType"))
        extension = self._owners[f"type {kind}"]
        assert extension is not None
        call.state = self._states.get(extension.identifier)
        result: Any = await extension.finishers[kind](call)
        if not isinstance(result, Mapping):
            own = extension.identifier
            raise InvalidResult(f"extension {own!r} must finish a call with a dict, not {result!r}")
        finished: JsonObject = dict(result)  # pyright: ignore[reportUnknownArgumentType]
        if finished.get("resultType", "complete") != "complete":
            raise InvalidResult(f"extension {extension.identifier!r} left a call of type {kind!r} unfinished")
        return finished

    def notified(self, message: JsonObject) -> None:
        """Give a notification to whoever has it. What that raises is logged: no caller waits for it."""
        hear = self._heard.get(str(message.get("method")))
        if hear is None:
            return
        params = message.get("params")
        try:
            hear(params if is_object(params) else {})
        except Exception:
            _log.exception("An extension failed on %s", message.get("method"))

    @property
    def listen(self) -> bool:
        """Whether notifications are listened to."""
        return bool(self._heard)

    def around(self, send: SendRequest) -> SendRequest:
        """Sending a request, inside all interceptors. The first extension is the outermost."""
        layers = [layer for extension in self._extensions for layer in extension.interceptors]
        for layer in reversed(layers):
            send = functools.partial(_around, layer, send)
        return send

    @asynccontextmanager
    async def living(self) -> AsyncGenerator[None, None]:
        """Enter the lifespans in order, and leave them in reverse."""
        async with AsyncExitStack() as stack:
            for extension in self._extensions:
                if extension.lifespan is not None:
                    state = await stack.enter_async_context(extension.lifespan())
                    self._states[extension.identifier] = state
            yield


async def _around(layer: Intercept, send: SendRequest, request: ClientRequest) -> JsonObject:
    return await layer(request, send)
