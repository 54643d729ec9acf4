"""Rate limits: per principal and per address, in both eras and on every transport."""

from typing import Any

import httpx2
import pytest

from ekiden import Rate, RateLimit, Request, Server, UsageError
from ekiden.server.operations.rate_limit import _Buckets
from ekiden.transports.server.proxies import network_of
from tests.eras.old_client import call as old_call
from tests.eras.old_client import hello, old_client, raw_client
from tests.serving import PATIENCE, call, exchange, headers_for, post, served

MESSAGE = call("hello")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def limited(clock: Clock, **options: Any) -> Server:
    server = Server("limited", keys=[b"k" * 32])
    server.middleware(RateLimit(clock=clock, **options))

    @server.tool
    async def hello() -> str:
        return "hello"

    return server


def by_header(request: Request) -> str | None:
    return request.header("x-user")


async def statuses(base: str, count: int, **headers: str) -> list[int]:
    return [(await post(base, MESSAGE, **headers)).status_code for _ in range(count)]


async def test_a_message_too_many_is_429_with_the_time_to_wait_and_the_bucket_fills_again() -> None:
    clock = Clock()
    async with served(limited(clock, per_address=Rate(3, seconds=30))) as base:
        assert await statuses(base, 3) == [200, 200, 200]
        refused = await post(base, MESSAGE)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "10")
        error = refused.json()["error"]
        assert error["message"] == "Too many requests: try again in 10 s"
        assert error["data"] == {"retryAfterSeconds": 10}
        clock.now += 9.9
        assert await statuses(base, 1) == [429]
        clock.now += 0.2
        assert await statuses(base, 2) == [200, 429]
        clock.now += 1000
        assert await statuses(base, 4) == [200, 200, 200, 429], "a bucket holds no more than the rate"


async def test_principals_are_counted_apart_and_whoever_is_unknown_is_not_counted() -> None:
    server = limited(Clock(), per_principal=Rate(2, seconds=60), principal=by_header)
    async with served(server) as base:
        assert await statuses(base, 3, x_user="ada") == [200, 200, 429]
        assert await statuses(base, 3, x_user="bob") == [200, 200, 429]
        assert await statuses(base, 4) == [200] * 4


async def test_what_an_address_may_not_send_takes_nothing_from_a_principal() -> None:
    clock = Clock()
    options = {"per_address": Rate(2, seconds=10), "per_principal": Rate(3, seconds=1000)}
    async with served(limited(clock, principal=by_header, **options)) as base:
        assert await statuses(base, 5, x_user="ada") == [200, 200, 429, 429, 429]
        clock.now += 10
        assert await statuses(base, 2, x_user="ada") == [200, 429], "two of three were taken before"


async def test_a_client_of_2025_is_limited_too() -> None:
    async with served(limited(Clock(), per_address=Rate(3, seconds=60))) as base:
        async with old_client(base) as client:  # `initialize` and `initialized` are two messages.
            assert (await client.send(old_call("hello"))).status_code == 200
            refused = await client.send(old_call("hello"))
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "20")
        async with raw_client(base) as other:
            assert (await other.send(hello())).status_code == 429, "another session is the same address"


async def test_without_http_the_error_says_how_long_to_wait() -> None:
    server = limited(Clock(), per_principal=Rate(1, seconds=7), principal=lambda request: "me")
    assert "result" in (await exchange(server, MESSAGE))[-1]
    refused = (await exchange(server, MESSAGE))[-1]["error"]
    assert refused["message"] == "Too many requests: try again in 7 s"


async def test_an_answer_to_a_pushed_question_and_a_leg_of_a_task_are_not_counted() -> None:
    limit = RateLimit(per_principal=Rate(1, seconds=60), principal=lambda request: "me", clock=Clock())

    async def passed(request: Request) -> Any:
        return "passed"

    for more in ({"kind": "response"}, {"task": "t1"}):
        for _ in range(3):
            meta: Any = None
            request = Request(1, "tools/call", {}, meta, "hello", None, **more)  # type: ignore[arg-type]
            assert await limit(request, passed) == "passed"


def test_as_many_buckets_are_kept_as_there_are_keys_and_the_oldest_goes_first() -> None:
    buckets = _Buckets(Rate(1, seconds=60), 1000)
    for number in range(5000):
        assert buckets.take(f"client {number}", 0.0) == 0
    assert len(buckets) == 1000
    assert buckets.take("client 4999", 0.0) == 60, "its bucket is still there, and empty"
    assert buckets.take("client 0", 0.0) == 0, "it was forgotten"


def test_one_network_of_ipv6_is_one_client() -> None:
    own = network_of("2001:db8:1:2::1")
    assert own == network_of("2001:db8:1:2:ffff::9") != network_of("2001:db8:1:3::1")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("not an address:") == "not an address:"


async def test_requests_of_which_nobody_knows_where_they_come_from_are_counted_together() -> None:
    application = limited(Clock(), per_address=Rate(2, seconds=60)).asgi()

    async def without_client(scope: Any, receive: Any, send: Any) -> None:
        """As uvicorn serves a client that has reset its connection, and one of a unix socket."""
        await application({**scope, "client": None}, receive, send)

    async with served(without_client) as base:
        assert await statuses(base, 3) == [200, 200, 429]


async def test_a_flood_costs_no_handler_a_run() -> None:
    ran = 0
    server = Server("flooded", keys=[b"k" * 32])
    server.middleware(RateLimit(per_address=Rate(5, seconds=3600)))

    @server.tool
    async def hello() -> str:
        nonlocal ran
        ran += 1
        return "hello"

    async with (
        served(server) as base,
        httpx2.AsyncClient(timeout=PATIENCE, trust_env=False) as client,
    ):
        replies = [
            await client.post(f"{base}/mcp", json=MESSAGE, headers=headers_for(MESSAGE)) for _ in range(50)
        ]
    assert [reply.status_code for reply in replies] == [200] * 5 + [429] * 45
    assert ran == 5


@pytest.mark.parametrize(
    "options", [{}, {"per_address": Rate(1), "keys": 0}], ids=["nothing to limit", "no room"]
)
def test_a_limit_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        RateLimit(**options)


@pytest.mark.parametrize(("messages", "seconds"), [(0, 1.0), (1, 0.0), (1, float("inf"))])
def test_a_rate_that_makes_no_sense_is_refused(messages: int, seconds: float) -> None:
    with pytest.raises(UsageError, match="at least one message"):
        Rate(messages, seconds)
