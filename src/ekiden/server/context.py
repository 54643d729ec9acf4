"""`Context`: what a handler may do besides returning.

A handler that wants it declares a parameter annotated with `Context` (or `Context[State]`, where
`State` is what the lifespan yields). It is bound to one request and dies with it.
"""

from typing import Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from ekiden.transports.port import Stream
from ekiden.wire.meta import LOG_LEVELS, RequestMeta
from ekiden.wire.modern import Request

__all__ = ["Context", "LogLevel"]

StateT = TypeVar("StateT", default=Any)

LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class Context(Generic[StateT]):
    """One request, from the inside of its handler."""

    __slots__ = ("_progress", "_stream", "request", "state")

    def __init__(self, request: Request, stream: Stream, state: StateT) -> None:
        self.request = request
        """The request as it came: method, params, `_meta`, HTTP headers where there are any."""
        self.state = state
        """What the server's lifespan yielded."""
        self._stream = stream
        self._progress: float | None = None

    @property
    def meta(self) -> RequestMeta:
        """The request's `_meta`: protocol version, capabilities, client info, and all other keys."""
        return self.request.meta

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the call is. Sent only if it asked; values that do not grow are dropped."""
        token = self.request.meta.progress_token
        if token is None or (self._progress is not None and progress <= self._progress):
            return
        self._progress = progress
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        await self._stream.notify("notifications/progress", params)

    async def log(self, level: LogLevel, data: Any, *, logger: str | None = None) -> None:
        """Send a log message. It leaves only if the request set a level, and `level` reaches it."""
        wanted = self.request.meta.log_level
        if wanted is None or LOG_LEVELS[level] < LOG_LEVELS[wanted]:
            return
        params: dict[str, Any] = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        await self._stream.notify("notifications/message", params)
