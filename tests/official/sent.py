"""The places where ekiden sends messages, watched: what is wrong there is noted in `wrong`."""

import functools
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ekiden.client.sessions.legacy import LegacySession
from ekiden.rounds.outcome import Complete, Failed, Interim, Task
from ekiden.server.endpoint import ServerEndpoint
from ekiden.server.legacy.requests import ClientRequests
from ekiden.server.legacy.session import Session, SessionStream
from ekiden.transports.client.channel import ChannelLink
from ekiden.transports.client.link import Listener, Outgoing
from ekiden.transports.client.streamable import StreamableLink
from ekiden.transports.server import conversation
from ekiden.transports.server.reply import Reply
from ekiden.wire.json import copied, decode
from ekiden.wire.modern import Request

from .types import MODERN, problem_of_request, problem_of_response

wrong: list[str] = []
"""What was wrong with messages since the last look."""

_OURS = (Complete, Failed, Interim, Task)


def _note(what: str, problem: str | None, message: Any) -> None:
    if problem is not None:
        wrong.append(f"{what}: {problem}\n    {str(message)[:1000]}")


_LONG = 100_000
"""Bytes of messages that are not looked through for names that stand twice."""


def _read(data: bytes) -> Any:
    """A message. A name that stands twice in one object is noted: readers differ in what they make of it."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        for name in {name for name in names if names.count(name) > 1}:
            _note("a message", f"{name!r} stands twice in one object", data)
        return dict(pairs)

    return decode(data) if len(data) > _LONG else json.loads(data, object_pairs_hook=unique)


# What a server sends


def _check_outcome(endpoint: ServerEndpoint, request: Request, outcome: Any) -> Any:
    # A session spells its responses itself; middleware of tests may answer with something of its own.
    if request.meta.protocol_version == MODERN and type(outcome) in _OURS and request.task is None:
        message = _read(outcome.render(endpoint.dialect, request.id))
        problem = problem_of_response("server", MODERN, request.method, message)
        _note(f"a server's response to {request.method}", problem, message)
    return outcome


def _watched_begin(begin: Callable[..., Any]) -> Callable[..., Any]:
    async def later(endpoint: ServerEndpoint, request: Request, answering: Coroutine[Any, Any, Any]) -> Any:
        return _check_outcome(endpoint, request, await answering)

    @functools.wraps(begin)
    def watched(self: ServerEndpoint, request: Request, stream: Any) -> Any:
        answer = begin(self, request, stream)
        if isinstance(answer, Complete | Failed):
            return _check_outcome(self, request, answer)
        return later(self, request, answer)

    return watched


def _watched_answer(answer: Callable[..., Awaitable[bytes]]) -> Callable[..., Awaitable[bytes]]:
    @functools.wraps(answer)
    async def watched(self: Session, message: Any, *rest: Any) -> bytes:
        response = await answer(self, message, *rest)
        if response:
            spelled = _read(response)
            problem = problem_of_response("server", self.version, message.method, spelled)
            _note(f"a server's response of {self.version} to {message.method}", problem, spelled)
        return response

    return watched


def _watched_notify(notify: Callable[..., Any], version: Callable[[Any], str]) -> Callable[..., Any]:
    @functools.wraps(notify)
    async def watched(self: Any, method: str, params: dict[str, Any], *rest: Any) -> Any:
        message = copied({"jsonrpc": "2.0", "method": method, "params": params})  # Parts may be bytes.
        _note(f"a server's {method}", problem_of_request("server", version(self), message), message)
        return await notify(self, method, params, *rest)

    return watched


def _watched_ask(send: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(send)
    async def watched(
        self: ClientRequests, line: Any, method: str, params: dict[str, Any], *rest: Any
    ) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        version = getattr(self, "version_of_test", "")
        _note(f"a server's {method} of {version}", problem_of_request("server", version, message), message)
        return await send(self, line, method, params, *rest)

    return watched


def _named_session(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def watched(self: Session, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self._requests.version_of_test = self.version  # type: ignore[attr-defined]

    return watched


def _version_of_stream(stream: SessionStream) -> str:
    return stream.session.version


# What a client sends


def _version_of(link: Any, message: dict[str, Any]) -> str:
    params = message.get("params") or {}
    if message.get("method") == "initialize":
        return str(params["protocolVersion"])
    named = (params.get("_meta") or {}).get("io.modelcontextprotocol/protocolVersion")
    return str(named or getattr(link, "version_of_test", MODERN))


def _watched_request(request: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(request)
    async def watched(self: Any, outgoing: Outgoing, listener: Listener) -> Any:
        message = _read(outgoing.body)
        version = _version_of(self, message)
        # A ping is our way to find out whether a silent server is there. Tests of links send other things.
        if message.get("method") not in ("ping", None):
            problem = problem_of_request("client", version, message)
            _note(f"a client's {outgoing.method} of {version}", problem, message)
        if outgoing.method == "initialize":
            self.version_of_test = version  # Until the server names another: it may send a ping before.
        response = await request(self, outgoing, listener)
        if outgoing.method == "initialize" and isinstance(response.get("result"), dict):
            self.version_of_test = str(response["result"].get("protocolVersion"))
        return response

    return watched


def _watched_send(send: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    @functools.wraps(send)
    async def watched(self: Any, data: bytes, *rest: Any) -> None:
        message = _read(data)
        version = _version_of(self, message)
        if "method" in message:
            what, problem = message["method"], problem_of_request("client", version, message)
        else:
            what = getattr(self, "asked_in_test", {}).get(message.get("id"), "")
            problem = problem_of_response("client", version, what, message)
        _note(f"a client's {what} of {version}", problem, message)
        await send(self, data, *rest)

    return watched


def _watched_asked(answer: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(answer)
    def watched(self: Any, message: dict[str, Any], *more: Any) -> None:
        link = self._link
        if not hasattr(link, "asked_in_test"):
            link.asked_in_test = {}
        link.asked_in_test[message["id"]] = message["method"]
        answer(self, message, *more)

    return watched


def watch() -> None:
    """Watch every message of this process from now on."""
    places: list[tuple[Any, str, Callable[[Any], Any]]] = [
        (ServerEndpoint, "begin", _watched_begin),
        (Session, "__init__", _named_session),
        (Session, "answer", _watched_answer),
        (Session, "_told", lambda told: _watched_notify(told, lambda session: str(session.version))),
        (
            SessionStream,
            "notify",
            lambda own: _watched_notify(own, lambda stream: str(stream.session.version)),
        ),
        (ClientRequests, "send", _watched_ask),
        (Reply, "notify", lambda notify: _watched_notify(notify, lambda _: MODERN)),
        (conversation._Stream, "notify", lambda notify: _watched_notify(notify, lambda _: MODERN)),
        (LegacySession, "answer", _watched_asked),
        *((link, "request", _watched_request) for link in (StreamableLink, ChannelLink)),
        *((link, "send", _watched_send) for link in (StreamableLink, ChannelLink)),
    ]
    for owner, name, watched in places:
        setattr(owner, name, watched(getattr(owner, name)))
