"""What the log says of refused states."""

import logging

import pytest

from ekiden import Context
from ekiden.server.sealing import refused_states
from tests.acceptance.driving import Client, new_server


async def test_a_client_cannot_fill_the_log_with_states_that_are_refused(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(refused_states.time, "monotonic", lambda: now[0])
    server = new_server()

    @server.tool
    async def tool(ctx: Context) -> str:
        return str(await ctx.elicit("Sure?", bool))

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]

    client = Client(server)
    for _ in range(25):
        await client.refused(requestState="forged", inputResponses={})
    assert warnings() == ["requestState refused for tools/call tool: not sealed by a key of this ring"] * 10
    caplog.clear()
    now[0] += 60
    await client.refused(requestState="forged", inputResponses={})
    counted, refused = warnings()
    assert counted == "15 more requestStates were refused in the minute of the last warnings"
    assert refused.startswith("requestState refused")
