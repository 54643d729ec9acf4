"""The challenge says what the server says, whatever words a tool has made its scopes of."""

from typing import Any

import httpx2
import pytest

from ekiden import (
    Auth,
    CallNext,
    Context,
    InsufficientScope,
    Outcome,
    Principal,
    Request,
    Server,
    StaticTokens,
)
from tests.eras.old_client import OldClient
from tests.eras.old_client import call as old_call
from tests.serving import call, post, served

METADATA = 'resource_metadata="http://localhost/.well-known/oauth-protected-resource/mcp"'
ODD = [
    'x", resource_metadata="https://evil.example/',
    "x\\",
    "x\r\nset-cookie: a=b",
    "x\x00",
    "é",
    "x y",
    "",
]


def repositories() -> Server:
    verifier = StaticTokens({"zoe": Principal("zoe")})
    server = Server("r", auth=Auth("http://localhost/mcp", issuer="https://idp.example", verifier=verifier))

    @server.middleware
    async def refuse(request: Request, call_next: CallNext) -> Outcome:
        if request.name == "refused":
            raise InsufficientScope([request.params["arguments"]["name"], "read"])
        return await call_next(request)

    @server.tool
    async def asked(name: str, ctx: Context) -> str:
        await ctx.require_scope(name, "read")
        return "granted"

    @server.tool
    async def raised(name: str) -> str:
        raise InsufficientScope([name, "read"])

    @server.tool
    async def refused(name: str) -> str:
        return name

    return server


def check(answer: httpx2.Response) -> None:
    assert answer.status_code in (200, 403), answer.text
    assert "granted" not in answer.text
    assert "set-cookie" not in answer.headers
    challenges = answer.headers.get_list("www-authenticate")
    assert len(challenges) == (answer.status_code == 403)
    for challenge in challenges:
        assert challenge.removeprefix('Bearer error="insufficient_scope", ').count('"') == 4, challenge
        assert challenge.endswith(METADATA)
        assert "evil" not in challenge


@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
@pytest.mark.parametrize("tool", ["asked", "raised", "refused"])
async def test_a_scope_made_of_what_a_client_sent_adds_nothing_to_the_challenge(
    tool: str, mounted: bool
) -> None:
    async with (
        served(repositories(), mounted=mounted) as base,
        httpx2.AsyncClient(trust_env=False) as http,
    ):
        old = OldClient(base, http)
        old.more = {"authorization": "Bearer zoe"}
        await old.open()
        for odd in ODD:
            arguments: dict[str, Any] = {"name": odd}
            check(await post(base, call(tool, arguments), authorization="Bearer zoe"))
            check(await http.post(base + "/mcp", json=old_call(tool, **arguments), headers=old.headers))
        plain = await post(base, call(tool, {"name": "repo:x"}), authorization="Bearer zoe")
    assert 'scope="read repo:x"' in plain.headers["www-authenticate"]
