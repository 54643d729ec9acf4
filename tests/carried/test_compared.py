"""Cells of the table in the README about the official SDK: what it does with a call that asks."""

from typing import Annotated, Any

import mcp_types as types
import pytest
from mcp.client import Client
from mcp.server.mcpserver import Elicit, MCPServer, Resolve
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from tests.serving import soon


class Agreed(BaseModel):
    ok: bool


def shop(did: list[str]) -> MCPServer:
    """A server whose tool asks in the way that the SDK offers: by a resolver, before its body."""
    server = MCPServer("shop")

    async def ask() -> Elicit[Agreed]:
        did.append("prepared")
        return Elicit("Refund?", Agreed)

    @server.tool()
    async def refund(agreed: Annotated[Agreed, Resolve(ask)]) -> str:
        did.append("paid")
        return "Refunded."

    return server


async def answered(server: MCPServer, asked: Any) -> Any:
    """What a server makes of the answer, and of the state that came with the question."""
    async with Client(server, elicitation_callback=nobody) as client:
        (key,) = asked.input_requests
        answers = {key: types.ElicitResult(action="accept", content={"ok": True})}
        return await soon(
            client.call_tool("refund", {}, input_responses=answers, request_state=asked.request_state)
        )


async def asked_by(server: MCPServer) -> Any:
    async with Client(server, elicitation_callback=nobody) as client:
        return await soon(client.session.call_tool("refund", {}, allow_input_required=True))


async def nobody(context: Any, params: Any) -> types.ElicitResult:
    raise AssertionError("the test answers itself")


async def test_what_is_done_before_a_question_is_done_again_in_the_next_round() -> None:
    did: list[str] = []
    server = shop(did)
    await answered(server, await asked_by(server))
    assert did == ["prepared", "prepared", "paid"]


async def test_an_approval_counts_as_often_as_it_is_sent() -> None:
    did: list[str] = []
    server = shop(did)
    asked = await asked_by(server)
    await answered(server, asked)
    await answered(server, asked)
    assert did.count("paid") == 2


async def test_another_process_has_another_key_and_refuses_the_answer() -> None:
    """Each server makes its key when it starts, unless the author gives it one."""
    did: list[str] = []
    refused = pytest.RaisesExc(MCPError, match="requestState")
    with pytest.RaisesGroup(refused, flatten_subgroups=True):
        await answered(shop(did), await asked_by(shop(did)))
    assert "paid" not in did
