"""Servers that do not go on with a call: what the client raises, and what it is not told."""

import logging

import pytest
from mcp_types import ElicitRequestFormParams, ElicitResult

from ekiden import CallLost, Client, Context, PendingCall, RoundLimits, Server, ServerError
from tests.hostile.evil import evil, says
from tests.serving import served

from .test_rounds import agree

KEY = b"a key of at least thirty-two bytes!"


def make_server(key: bytes = KEY, rounds: RoundLimits | None = None) -> Server:
    server = Server("s", keys=[key], rounds=rounds)

    @server.tool
    async def greet(ctx: Context) -> str:
        """Ask for a name."""
        return f"Hello {(await ctx.elicit('Who?', str)).data}"

    @server.tool(resume="parked")
    async def wait(ctx: Context) -> str:
        """Ask for a name, and stay in memory."""
        return f"Hello {(await ctx.elicit('Who?', str)).data}"

    return server


async def pending_at(server: Server, tool: str = "greet") -> PendingCall:
    async with Client(server, elicit=agree) as client:
        pending = await client.start_tool(tool)
    assert isinstance(pending, PendingCall)
    return pending


async def resumed_at(server: Server, pending: PendingCall) -> CallLost:
    async with served(server) as base, Client(f"{base}/mcp", elicit=agree) as client:
        with pytest.raises(CallLost) as caught:
            await client.resume(pending)
    return caught.value


async def test_a_refused_state_says_to_start_again_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    of_another = make_server(b"another key, of thirty-two bytes too")
    expired = make_server(rounds=RoundLimits(answer_seconds=-1.0))
    foreign, late = await pending_at(of_another), await pending_at(expired)
    with caplog.at_level(logging.WARNING, logger="ekiden.server.sealing.refused_states"):
        refusals = [await resumed_at(make_server(), foreign), await resumed_at(make_server(), late)]
    told = {(refusal.code, str(refusal), str(refusal.data)) for refusal in refusals}
    assert told == {
        (-32602, "Invalid or expired requestState: restart the call", "{'ekiden/next': 'restart_call'}")
    }
    reasons = [(record.levelname, record.getMessage().rpartition(": ")[2]) for record in caplog.records]
    assert reasons == [("WARNING", "not sealed by a key of this ring"), ("WARNING", "expired")]


async def test_a_call_whose_process_is_gone_is_lost_too() -> None:
    lost = await resumed_at(make_server(), await pending_at(make_server(), "wait"))
    assert "given it up" in str(lost)


async def test_a_handler_that_has_changed_loses_the_call() -> None:
    def versioned(step_name: str) -> Server:
        server = make_server()

        @server.tool
        async def pay(ctx: Context) -> str:
            """Pay, then ask."""
            await ctx.step(abs, -1, key=step_name)
            return str((await ctx.elicit("Who?", str)).data)

        return server

    lost = await resumed_at(versioned("after"), await pending_at(versioned("before"), "pay"))
    assert lost.code == -32603


async def test_a_call_of_all_rounds_is_lost_when_its_answer_comes_too_late() -> None:
    asked: list[str] = []

    async def answer(params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"value": "Ann"})

    server = make_server(rounds=RoundLimits(answer_seconds=-1.0))
    async with served(server) as base, Client(f"{base}/mcp", elicit=answer) as client:
        with pytest.raises(CallLost):
            await client.call_tool("greet")
    assert asked == ["Who?"], "the call is not started again by itself"


async def test_only_that_data_makes_a_call_lost() -> None:
    for data in (b"null", b'"restart_call"', b'{"ekiden/next": ["restart_call"]}', b'{"next": 1}'):
        error = b'{"code": -32602, "message": "no", "data": %b}' % data
        body = b'{"jsonrpc": "2.0", "id": "ID", "error": %b}' % error
        async with evil({"deed": says(body)}) as server, Client(server.url) as client:
            with pytest.raises(ServerError) as caught:
                await client.call_tool("deed")
            assert type(caught.value) is ServerError
