"""A text of four megabytes in every place of every method: none of them keeps the event loop for long."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from ekiden import Context, Server
from tests.processor import MOMENTS_PER_SECOND, measured
from tests.serving import PATIENCE, request

_LONG = 4_000_000
_TEXTS = {
    "letters": "z" * _LONG,
    "slashes": "a/" * (_LONG // 2),
    "escapes": "%41" * (_LONG // 3),
    "bad escapes": "%" * _LONG,
    "query": "?" + "a=b&" * (_LONG // 4),
    "dots": "." * _LONG,
    "wide": "\U0001f600" * (_LONG // 4),
}
_MOST_MOMENTS = MOMENTS_PER_SECOND
"""For all these texts in one place, five templates and three other copies included."""

_PLACES: dict[str, tuple[str, Any]] = {
    "name of a tool": ("tools/call", lambda text: {"name": text}),
    "argument": ("tools/call", lambda text: {"name": "echo", "arguments": {"text": text}}),
    "name of an argument": ("tools/call", lambda text: {"name": "echo", "arguments": {text: 1}}),
    "name of a prompt": ("prompts/get", lambda text: {"name": text}),
    "argument of a prompt": ("prompts/get", lambda text: {"name": "greet", "arguments": {"who": text}}),
    "end of a URI": ("resources/read", lambda text: {"uri": f"x4://a/b/{text}"}),
    "middle of a URI": ("resources/read", lambda text: {"uri": f"x4://{text}/b"}),
    "scheme of a URI": ("resources/read", lambda text: {"uri": f"{text}://a"}),
    "cursor": ("tools/list", lambda text: {"cursor": text}),
    "completed value": (
        "completion/complete",
        lambda text: {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "who", "value": text},
        },
    ),
    "completed reference": (
        "completion/complete",
        lambda text: {
            "ref": {"type": "ref/resource", "uri": f"x4://a/{text}"},
            "argument": {"name": "rest", "value": ""},
        },
    ),
    "progress token": (
        "tools/call",
        lambda text: {"name": "report", "arguments": {}, "_meta": {"progressToken": text}},
    ),
    "id of a task": ("tasks/get", lambda text: {"taskId": text}),
    "state": ("tools/call", lambda text: {"name": "report", "requestState": text}),
    "answer": ("tools/call", lambda text: {"name": "report", "inputResponses": {"a": {"action": text}}}),
    "level": ("logging/setLevel", lambda text: {"level": text}),
    "subscribed URI": ("resources/subscribe", lambda text: {"uri": f"x4://a/b/{text}"}),
    "URI that is let go": ("resources/unsubscribe", lambda text: {"uri": text}),
    "subscription": (
        "subscriptions/listen",
        lambda text: {"notifications": {"resourceSubscriptions": [text]}},
    ),
    "method": ("no/such", lambda text: {"a": text}),
}


def _server() -> Server:
    server = Server("long", version="1", store="memory:")

    @server.tool
    async def echo(text: str) -> str:
        return text[:10]

    @server.tool(task="deferred")
    async def report(ctx: Context) -> str:
        await ctx.progress(1)
        return "done"

    @server.prompt
    async def greet(who: str) -> str:
        return who[:10]

    @server.completion(argument="who", prompt="greet")
    async def names(value: str) -> list[str]:
        return [value[:10]]

    for number in range(5):

        @server.resource(f"x{number}://{{name}}/b/{{+rest}}{{?a}}", name=f"thing{number}")
        async def thing(name: str, rest: str, a: str = "") -> str:
            return "x"

    return server


def _spelled(method: str, params: Mapping[str, Any], era: str, number: int) -> dict[str, Any]:
    if era == "2025":
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)}
    more = params.get("_meta", {})
    rest = {name: value for name, value in params.items() if name != "_meta"}
    return request(method, rest, request_id=number, **more)


async def _shake_hands(channel: Any) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    await channel.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    await channel.receive()
    await channel.send({"jsonrpc": "2.0", "method": "notifications/initialized"})


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("place", _PLACES)
async def test_a_long_text_is_answered_in_a_moment(place: str, era: str) -> None:
    method, params = _PLACES[place]
    async with asyncio.timeout(3 * PATIENCE), _server().connect() as channel:
        if era == "2025":
            await _shake_hands(channel)
        took: dict[str, float] = {}
        for number, (kind, text) in enumerate(_TEXTS.items(), 1):
            message = _spelled(method, params(text), era, number)
            with measured() as answer:
                await channel.send(message)
                while (await channel.receive()).get("id") != number:
                    pass
            took[kind] = round(answer.moments, 1)
    assert sum(took.values()) < _MOST_MOMENTS, took
