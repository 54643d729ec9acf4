"""What a client takes from a task: so many questions, and a state of so many characters."""

import asyncio

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import Client, ClientLimits, Context, InvalidResult, Server, TaskHandle, TooManyRounds
from ekiden.stores.memory import MemoryStore
from tests.client.tasks.draft_server import DraftServer
from tests.serving import served, soon
from tests.tasks.driving import new_server

DRAFT = "2026-06-XX"


class Patient:
    """A user who answers everything."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, params: ElicitRequestFormParams) -> ElicitResult:
        self.asked.append(params.message)
        (field,) = params.requested_schema["properties"]
        return ElicitResult(action="accept", content={field: "yes"})


def asking_for_ever() -> Server:
    server = new_server(MemoryStore(), experimental_protocol_version=DRAFT)

    @server.tool(task="required")
    async def asks(ctx: Context) -> str:
        for number in range(50):
            await asyncio.gather(*(ctx.elicit(f"{number}{part}?", str) for part in "ab"))
        return "done"

    return server


@pytest.mark.parametrize("version", [None, DRAFT])
async def test_a_task_that_asks_more_than_it_may_is_cancelled(version: str | None) -> None:
    user, server = Patient(), asking_for_ever()
    limits = ClientLimits(task_questions=5)
    async with (
        served(server) as base,
        Client(f"{base}/mcp", elicit=user, limits=limits, experimental_protocol_version=version) as client,
    ):
        with pytest.raises(TooManyRounds, match="asks more than 5 questions"):
            await soon(client.call_tool("asks"))
        assert sorted(user.asked) == ["0a?", "0b?", "1a?", "1b?"]
        handle = await client.start_tool("asks")
        assert isinstance(handle, TaskHandle)
        with pytest.raises(TooManyRounds):
            await soon(handle.wait())
        assert (await handle.status()).status == "cancelled"


@pytest.mark.real_time
async def test_a_task_may_ask_as_much_as_it_may() -> None:
    user, limits = Patient(), ClientLimits(task_questions=100)
    async with Client(asking_for_ever(), elicit=user, limits=limits) as client:
        await soon(client.call_tool("asks"))
    assert len(user.asked) == 100


async def test_a_state_that_is_too_large_is_refused_before_the_user_is_asked() -> None:
    user, server = Patient(), DraftServer()
    server.state = "x" * 1001
    limits = ClientLimits(state_bytes=1000)
    async with (
        served(server.app) as base,
        Client(f"{base}/mcp", elicit=user, limits=limits, experimental_protocol_version=DRAFT) as client,
    ):
        with pytest.raises(InvalidResult, match="state has 1001 characters; at most 1000"):
            await soon(client.call_tool("echo"))
    assert user.asked == []
    assert server.cancelled
