"""Bodies that are small to send and large to read: what they cost is bounded before they are read."""

import json
import time
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

from ekiden import Context, HttpLimits, Server
from ekiden.errors import ParseError
from ekiden.wire.json import MAX_DEPTH, MAX_VALUES, decode
from tests.serving import ask, call, headers_for, post, post_raw, request, served, spawned

_SIZE = 4_190_000
"""As large as a body may be."""


def _list_of(item: str, number: int) -> bytes:
    return ("[" + ",".join([item] * number) + "]").encode()


def _filled(item: str) -> bytes:
    """A list of as many of these as fit in a body."""
    return _list_of(item, _SIZE // (len(item) + 1))


_NEST = "[" * 100 + "]" * 100
_HARD_NUMBER = "1.797693134862315708145274237317043567981e308"

_LARGE = {
    "empty lists": _filled("[]"),
    "empty objects": _filled("{}"),
    "numbers": _filled("1"),
    "texts": _filled('""'),
    "lists in lists": _filled(_NEST),
    "names": ("{" + ",".join(f'"k{n}":0' for n in range(_SIZE // 13)) + "}").encode(),
    "numbers of many digits": _filled("1" * 4000),
    "numbers that are hard to round": _filled(_HARD_NUMBER),
    "large exponents": _filled("1e290"),
    "a bracket that never ends": b"[" * _SIZE,
    "quotes and brackets": _filled('"],["'),
}


# Counting


@pytest.mark.parametrize("body", _LARGE.values(), ids=_LARGE)
def test_a_body_of_too_many_values_is_refused_before_it_is_read(body: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ParseError, match="more than 50000 values"):
            decode(body, MAX_VALUES)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * _SIZE  # To read them would take twenty times their bytes, and more.


@pytest.mark.parametrize("body", _LARGE.values(), ids=_LARGE)
def test_to_refuse_a_large_body_takes_about_as_long_as_to_read_one_that_is_a_single_text(body: bytes) -> None:
    text = b'"' + b"a" * _SIZE + b'"'

    def seconds(read: Callable[[], Any]) -> float:
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            read()
            best = min(best, time.process_time() - began)
        return best

    def refused() -> None:
        with pytest.raises(ParseError):
            decode(body, MAX_VALUES)

    assert seconds(refused) < 20 * seconds(
        lambda: decode(text)
    )  # It took two hundred times as long, or more.


def test_what_is_in_texts_is_not_counted() -> None:
    texts = [",[{" * 60_000, '"],["' * 60_000, "\\" * 60_001, '\\"[' * 60_000, "1e290," * 10_000]
    assert decode(json.dumps(texts).encode(), 100) == texts
    assert decode(json.dumps(dict.fromkeys(texts, 1)).encode(), 100) == dict.fromkeys(texts, 1)


@pytest.mark.parametrize(
    "value", [[1] * 99, [[]] * 49, {f"k{n}": n for n in range(99)}, [{"a": "b"}] * 49, ["x"] * 99]
)
def test_a_value_is_counted_once_and_an_empty_list_twice(value: Any) -> None:
    long_text = "," * 1000
    data = json.dumps([value, long_text]).encode()
    assert decode(data, 103) == [value, long_text]
    with pytest.raises(ParseError, match="values"):
        decode(data, 90)


def test_numbers_as_programs_print_them_count_once() -> None:
    numbers = [0.0012345678901234567 * n for n in range(1, 2000)] + [-1.5e-10, 2**63, -(2**63), 1e22, 0.1]
    assert decode(json.dumps(numbers).encode(), len(numbers) + 100) == numbers


def test_a_hard_number_counts_as_many() -> None:
    data = _list_of(_HARD_NUMBER, 100) + b" " * 1000
    assert len(decode(data, 5000)) == 100
    with pytest.raises(ParseError, match="values"):
        decode(data, 3000)


def test_depth_is_found_out_without_reading() -> None:
    deep = b'{"a":' * 64 + b"[" * (MAX_DEPTH - 64) + b"]" * (MAX_DEPTH - 64) + b"}" * 64
    assert decode(deep + b" " * 1000)
    for text in (b"[" + deep + b"]", b'["]]]]]]]]",' + deep + b"]", b'["\\"]]]",' + deep + b"]"):
        with pytest.raises(ParseError, match="nested deeper than 128"):
            decode(text)


# Over HTTP, both eras


def _server() -> Server:
    server = Server("guarded", version="1")

    @server.tool
    async def count(values: list[list[int]]) -> int:
        """Count lists."""
        return len(values)

    @server.tool(input_schema={"type": "object", "properties": {"values": {"items": {"type": "array"}}}})
    async def count_any(values: list[Any]) -> str:
        """Count anything."""
        return str(len(values))

    @server.tool
    async def ask_model(ctx: Context) -> str:
        """Ask for a text."""
        return (await ctx.sample("Say something.", max_tokens=10)).model

    return server


def _session(capabilities: str, *, info: str = '{"name":"test"}') -> bytes:
    return (
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
        f'"capabilities":{capabilities},"clientInfo":{info}}}}}'
    ).encode()


_OLD = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


async def test_many_values_are_refused_in_both_eras_and_on_every_way_in() -> None:
    many = "[" + ",".join(["[]"] * 60_000) + "]"
    listing = request("tools/list")
    modern = json.dumps({**listing, "params": {**listing["params"], "x": "?"}}).replace('"?"', many)
    answer = f'{{"jsonrpc":"2.0","id":7,"result":{many}}}'
    async with served(_server()) as base:
        opened = await post_raw(base, _session("{}"), _OLD)
        session = {**_OLD, "mcp-session-id": opened.headers["mcp-session-id"]}
        for headers, body in (
            (headers_for(listing), modern.encode()),
            (_OLD, _session(many)),
            (_OLD, many.encode()),
            (session, answer.encode()),
            ({**session, "mcp-protocol-version": "2025-11-25"}, answer.encode()),
        ):
            response = await post_raw(base, body, headers)
            assert response.status_code == 400
            assert response.json()["error"]["code"] == -32700
            assert "more than 50000 values" in response.json()["error"]["message"]
        assert (await post(base, call("count", {"values": [[1], [2]]}))).status_code == 200


async def test_the_limit_can_be_raised() -> None:
    message = call("count", {"values": [[]] * 60_000})
    async with served(_server(), limits=HttpLimits(values=200_000)) as base:
        assert (await post(base, message)).json()["result"]["structuredContent"] == 60_000


async def test_many_values_are_refused_on_a_channel_of_either_era() -> None:
    server = _server()
    many = [[]] * 60_000
    assert "values" in (await ask(server, "tools/list", {"x": many}))["error"]["message"]
    async with server.connect() as channel:
        await channel.send(_session("{}"))
        assert "result" in await channel.receive()
        await channel.send({"jsonrpc": "2.0", "id": 9, "result": many})
        assert "values" in (await channel.receive())["error"]["message"]


@pytest.mark.parametrize("tool", ["count", "count_any"])
async def test_arguments_that_are_wrong_in_many_places_are_not_told_of_one_by_one(tool: str) -> None:
    async with served(_server(), limits=HttpLimits(values=200_000)) as base:

        async def called(values: list[Any]) -> tuple[float, Any]:
            """What processor time it took, and what it came to."""
            began = time.process_time()
            result = (await post(base, call(tool, {"values": values}))).json()["result"]
            return time.process_time() - began, result

        usual, right = await called([[]] * 40_000)
        took, wrong = await called(["x" * 100] * 40_000)
        _, few = await called(["x", [1]])
    assert not right.get("isError")
    assert wrong["isError"]
    assert len(wrong["content"][0]["text"]) < 1000
    assert "values.0" in few["content"][0]["text"]
    assert took < 25 * usual, "as long as to tell of each of them"


async def test_what_is_quoted_of_wrong_arguments_is_short() -> None:
    async with served(_server()) as base:
        result = (await post(base, call("count_any", {"values": ["x" * 1_000_000]}))).json()["result"]
    assert result["isError"]
    text = result["content"][0]["text"]
    assert len(text) < 1000
    assert 'is not of type "array"' in text


async def test_an_answer_that_is_wrong_in_many_places_is_refused_in_few_words() -> None:
    async with served(_server()) as base:
        message = call("ask_model", **{"io.modelcontextprotocol/clientCapabilities": {"sampling": {}}})
        asked = (await post(base, message)).json()["result"]
        (key,) = asked["inputRequests"]
        wrong = {"role": "assistant", "model": "m", "content": [{"type": "nothing"}] * 10_000}
        params = {**message["params"], "requestState": asked["requestState"], "inputResponses": {key: wrong}}
        refused = await post(base, {**message, "params": params})
    assert refused.json()["error"]["code"] == -32602
    assert len(refused.text) < 3000


# Memory of a server in a process of its own


_RUN = """
import sys
from ekiden import Server
server = Server("run", version="1")
@server.tool
async def greet(name: str) -> str:
    "Greet someone."
    return "Hello!"
server.run("http", port=int(sys.argv[1]))
"""


@asynccontextmanager
async def _measured() -> AsyncGenerator[tuple[str, Callable[[], float]], None]:
    async with spawned(_RUN, forked=False) as server:
        process = psutil.Process(server.process.pid)
        yield server.base, lambda: process.memory_info().rss / 1e6


async def test_large_bodies_leave_nothing_behind() -> None:
    text = "x" * (_SIZE - 1000)
    accepted = json.dumps(call("greet", {"name": text})).encode()
    headers = headers_for(call("greet", {}))
    async with _measured() as (base, megabytes):
        for body, status in ((accepted, 200), (_LARGE["empty lists"], 400)):
            for _ in range(5):
                assert (await post_raw(base, body, headers)).status_code == status
        before = megabytes()
        for body, status in ((accepted, 200), (_LARGE["empty lists"], 400)):
            for _ in range(15):
                assert (await post_raw(base, body, headers)).status_code == status
        assert (
            megabytes() - before < 60
        )  # 30 bodies are 125 MB, and each was held twice until a collector came.
