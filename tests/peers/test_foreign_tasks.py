"""Our client and the experimental tasks of the official SDK's first generation."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from ekiden import CallCancelled, Client, ServerError, TaskHandle, TaskSnapshot
from tests.peers import running
from tests.peers.foreign import PATIENCE, SERVERS, http_server

pytestmark = pytest.mark.xdist_group("foreign-tasks")


class Person:
    """Answers, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def elicit(self, params: types.ElicitRequestFormParams) -> types.ElicitResult:
        self.asked.append(params.message)
        return types.ElicitResult(action="accept", content={"value": 3})

    async def sample(self, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        self.asked.append("sampling")
        words = types.TextContent(text="Thank you.")
        return types.CreateMessageResult(role="assistant", model="m", content=words)


@pytest.fixture(params=["http", "stdio"])
async def visit(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[tuple[Client, Person], None]:
    environment = running.ROOT / ".peers" / "mcp1"
    running.require(environment)
    command = [str(environment / "bin" / "python"), str(SERVERS / "official1_tasks.py")]
    with contextlib.ExitStack() as stack:
        target: Any = [*command, "stdio"]
        if request.param == "http":
            target = stack.enter_context(http_server(command, tmp_path / "log")) + "/"
        person = Person()
        async with Client(target, elicit=person.elicit, sample=person.sample, timeout=PATIENCE) as client:
            yield client, person


def text(result: Any) -> str:
    assert isinstance(result, types.CallToolResult)
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def test_a_tool_that_must_be_a_task_is_driven_and_its_questions_answered(
    visit: tuple[Client, Person],
) -> None:
    client, person = visit
    seen: list[TaskSnapshot] = []
    result = await client.call_tool("order", on_status=seen.append, timeout=PATIENCE)
    assert text(result) == "3 ordered. Thank you."
    assert person.asked == ["How many?", "sampling"]
    assert seen[-1].status == "completed"


async def test_tools_that_need_not_be_tasks(visit: tuple[Client, Person]) -> None:
    client, _ = visit
    assert text(await client.call_tool("plain")) == "plain"
    assert text(await client.call_tool("add", {"n": 1})) == "2"
    handle = await client.start_tool("add", {"n": 2})
    assert isinstance(handle, TaskHandle)
    assert text(await handle.wait(timeout=PATIENCE)) == "3"
    assert (await handle.status()).status == "completed"


async def test_a_task_that_fails(visit: tuple[Client, Person]) -> None:
    client, _ = visit
    with pytest.raises(ServerError, match="the machine is broken"):
        await client.call_tool("breaks", timeout=PATIENCE)
    refused = await client.call_tool("says_no", timeout=PATIENCE)
    assert (refused.is_error, text(refused)) == (True, "The office is closed.")


async def test_a_task_is_cancelled(visit: tuple[Client, Person]) -> None:
    client, _ = visit
    handle = await client.start_tool("hangs")
    assert isinstance(handle, TaskHandle)
    assert (await handle.status()).status == "working"
    waiting = asyncio.create_task(handle.wait(timeout=PATIENCE))
    await asyncio.sleep(0.1)
    await handle.cancel()
    with pytest.raises(CallCancelled):
        await waiting
    assert (await handle.status()).status == "cancelled"
