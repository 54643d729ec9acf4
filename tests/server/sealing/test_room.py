"""Room in the store for clients that have no principal."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ekiden import Context, RoundLimits, Server
from ekiden.errors import InternalError, UsageError
from ekiden.server.sealing.room import Room
from tests.serving import call, post, served


def test_a_client_without_a_principal_does_not_use_up_the_room_of_all() -> None:
    room = Room(10, 3200)
    for _ in range(32):
        room.take("", 100, now=0.0, expires=60.0, client="192.0.2.1")
    for client in ("192.0.2.1", ""):
        with pytest.raises(InternalError):
            room.take("", 100, now=0.0, expires=60.0, client=client)
    for number in range(2, 10):
        room.take("", 100, now=0.0, expires=60.0, client=f"192.0.2.{number}")
        with pytest.raises(InternalError):
            room.take("", 100, now=0.0, expires=60.0, client=f"192.0.2.{number}")
    with pytest.raises(InternalError):
        room.take("", 100, now=0.0, expires=60.0, client="192.0.2.99")
    room.take("", 3200, now=61.0, expires=120.0, client="192.0.2.1")
    room.take("", 100, now=61.0, expires=120.0, client="192.0.2.2")


def test_a_principal_has_its_own_room_only() -> None:
    room = Room(100, 3200)
    room.take("alice", 100, now=0.0, expires=60.0, client="192.0.2.1")
    with pytest.raises(InternalError):
        room.take("alice", 1, now=0.0, expires=60.0, client="192.0.2.2")
    room.take("", 3200, now=0.0, expires=60.0, client="192.0.2.1")


class Text(BaseModel):
    """Any text."""

    text: str


async def test_large_states_of_one_address_leave_room_for_those_of_others(tmp_path: Path) -> None:
    limits = RoundLimits(stored_bytes_without_principal=4_000_000)
    server = Server("s", version="1", store=f"sqlite:///{tmp_path}/s.db", rounds=limits)

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask twice."""
        await ctx.elicit("What?", Text)
        await ctx.elicit("And then?", Text)
        return "done"

    asking: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
    async with served(server, trusted_proxies=["127.0.0.1"]) as base:
        first = (await post(base, call("ask", **asking))).json()["result"]
        (key,) = first["inputRequests"]
        message = call("ask", **asking)
        answer = {"action": "accept", "content": {"text": "x" * 100_000}}
        message["params"] |= {"requestState": first["requestState"], "inputResponses": {key: answer}}

        async def is_kept(address: str) -> bool:
            return "result" in (await post(base, message, x_forwarded_for=address)).json()

        greedy = [await is_kept("192.0.2.1") for _ in range(41)]
        assert (greedy[0], greedy[-1]) == (True, False)
        assert await is_kept("192.0.2.2")
        assert not await is_kept("192.0.2.1")


@pytest.mark.parametrize("name", ["answer_seconds", "flow_seconds", "lease_seconds"])
@pytest.mark.parametrize("seconds", [float("inf"), float("nan")])
def test_a_time_without_end_is_refused(name: str, seconds: float) -> None:
    with pytest.raises(UsageError, match=name):
        RoundLimits(**{name: seconds})
