"""No client can write lines of its own into the log: what clients say is shown on one line."""

import asyncio
import base64
import logging
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from pydantic import BaseModel, field_validator

from ekiden import Auth, Context, Principal, Request, Server, StaticTokens, VerifiedToken
from ekiden.wire.tasks import EXTENSION
from tests.eras.old_client import OldClient
from tests.eras.old_client import request as old_request
from tests.serving import call, post, post_raw, request, served

CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
FORGED = "x\nERROR forged\r\x1b[2Jy"
BOTH = pytest.mark.parametrize("mounted", [False, True], ids=["our own HTTP", "any ASGI server"])


class ForAnybody:
    """Accepts every token, for an audience that spoils a line."""

    async def verify_token(self, token: str) -> VerifiedToken:
        return VerifiedToken(subject="zoe", resource=FORGED)


async def failing(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("This application always fails")


def careless() -> Server:
    tokens = StaticTokens({"zoe": Principal("zoe")})
    server = Server("log", auth=Auth("http://localhost/mcp", verifier=[tokens, ForAnybody()]))

    @server.resource("note://{+name}")
    async def note(name: str, ctx: Context) -> str:
        await ctx.sleep(0)
        raise RuntimeError("This note cannot be read")

    server.route("/app", app=failing)
    return server


async def test_methods_and_answers_of_a_client_stay_on_their_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ekiden")
    server = Server("log")

    class Size(BaseModel):
        size: str

        @field_validator("size")
        @classmethod
        def is_known(cls, value: str) -> str:
            raise ValueError(f"there is no size {value}")

    @server.middleware
    async def fails(request: Request, call_next: Any) -> Any:
        return 1 / 0 if request.method == FORGED else await call_next(request)

    @server.tool
    async def order(ctx: Context) -> str:
        return str(await ctx.elicit("Which size?", Size))

    able = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    async with served(server) as base, httpx2.AsyncClient(trust_env=False) as http:
        old = OldClient(base, http)
        await old.open()
        notice = {"jsonrpc": "2.0", "method": FORGED}
        await http.post(base + "/mcp", json=notice, headers=old.headers)
        asked = (await post(base, call("order", **able))).json()["result"]
        answers = {key: {"action": "accept", "content": {"size": FORGED}} for key in asked["inputRequests"]}
        again = request(
            "tools/call",
            {"name": "order", "requestState": asked["requestState"], "inputResponses": answers},
            **able,
        )
        assert (await post(base, again)).json()["result"]["resultType"] == "input_required"
    said = [record.getMessage() for record in caplog.records if record.name.startswith("ekiden")]
    assert any("A middleware raised" in line for line in said)
    assert any("is asked for again" in line for line in said)
    assert [line for line in said if not line.isprintable()] == []


async def test_an_answer_that_does_not_fit_is_only_in_the_log_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "ekiden")
    server = Server("log", store="memory:", keys=[b"k" * 32])

    @server.tool(task="optional")
    async def order(ctx: Context) -> str:
        return str(await ctx.elicit("Which size?", ["small", "large"], key="size"))

    forms = {"elicitation": {"form": {}}}
    tasks = {**forms, "extensions": {EXTENSION: {}}}
    wrong = {"action": "accept", "content": {"value": "hunter2"}}
    async with served(server) as base:
        asked = (await post(base, call("order", **{CAPABILITIES: forms}))).json()["result"]
        more = {"requestState": asked["requestState"], "inputResponses": {"size": wrong}}
        await post(base, request("tools/call", {"name": "order", **more}, **{CAPABILITIES: forms}))
        made = (await post(base, call("order", **{CAPABILITIES: tasks}))).json()["result"]["taskId"]
        about: dict[str, Any] = {"mcp_name": made}
        async with asyncio.timeout(60):
            for key in ("size.1", "size.2"):
                look = request("tasks/get", {"taskId": made}, **{CAPABILITIES: tasks})
                while key not in (await post(base, look, **about)).text:
                    await asyncio.sleep(0.01)
                given = {"taskId": made, "inputResponses": {key: wrong}}
                await post(base, request("tasks/update", given, **{CAPABILITIES: tasks}), **about)
    said = [record for record in caplog.records if "asked for again" in record.getMessage()]
    assert len(said) >= 2
    quoting = {record.levelname for record in caplog.records if "hunter2" in record.getMessage()}
    assert quoting == {"DEBUG"}


@BOTH
async def test_words_of_a_client_stay_on_their_line(caplog: pytest.LogCaptureFixture, mounted: bool) -> None:
    caplog.set_level(logging.DEBUG, "ekiden")
    uri = "note://x\u2028ERROR-forged"  # A line ends here, and no rule for URIs forbids it.
    async with (
        served(careless(), mounted=mounted, quiet=False) as base,
        httpx2.AsyncClient(trust_env=False) as http,
    ):
        await post_raw(base, b"", {}, path=f"/app/{quote(FORGED)}")
        assert (await post(base, call("nothing"), authorization="Bearer other")).status_code == 401
        old = OldClient(base, http)
        old.more = {"authorization": "Bearer zoe"}
        await old.open()
        for more in ({}, {"requestState": "ek1.aaaa.bbbb"}):
            message = old_request("resources/read", {"uri": uri, **more})
            await http.post(base + "/mcp", json=message, headers=old.headers)
            spelled = "=?base64?" + base64.b64encode(uri.encode()).decode() + "?="
            message = request("resources/read", {"uri": uri, **more})
            await post(base, message, authorization="Bearer zoe", mcp_name=spelled)
    said = [record.getMessage() for record in caplog.records if record.name.startswith("ekiden")]
    assert any("note://" in line for line in said)
    assert any("requestState refused" in line for line in said)
    assert any("An access token was refused" in line for line in said)
    assert mounted or any("/app/" in line for line in said)
    assert [line for line in said if not line.isprintable()] == []
