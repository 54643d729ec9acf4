"""Opaque tokens: their issuer is asked about them, and the official SDK's verifiers are taken as they are."""

import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from mcp.server.auth.provider import AccessToken
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ekiden import Auth, IntrospectionVerifier, Server
from ekiden.signals import VerifierUnavailable
from tests.identity_provider import IdentityProvider
from tests.serving import post, request, served

from .test_auth import RESOURCE, called, whoami


@pytest.fixture
async def idp() -> AsyncGenerator[IdentityProvider, None]:
    async with IdentityProvider().running() as provider:
        yield provider


def introspecting(idp: IdentityProvider, **options: Any) -> IntrospectionVerifier:
    return IntrospectionVerifier(idp.issuer, client_id="server", client_secret="secret", **options)


async def test_an_active_token_is_valid_and_asked_about_once(idp: IdentityProvider) -> None:
    server = whoami(Auth(RESOURCE, verifier=introspecting(idp)))
    token, ended = idp.token(scope="read", tenant="acme"), idp.token()
    idp.inactive.add(ended)
    async with served(server) as base:
        answers = [await called(base, each) for each in (token, token, ended, idp.token(aud="other"))]
    assert [answer.status_code for answer in answers] == [200, 200, 401, 401]
    said = answers[0].json()["result"]["structuredContent"]
    assert (said["subject"], said["scopes"], said["tenant"]) == ("zoe", ["read"], "acme")
    assert idp.asked.count("/introspect") == 3


async def test_a_revoked_token_is_noticed_after_a_while(idp: IdentityProvider) -> None:
    now = [1_000.0]
    auth = Auth(RESOURCE, verifier=introspecting(idp, cache_seconds=5), clock=lambda: now[0])
    token = idp.token()
    async with served(whoami(auth)) as base:
        assert (await called(base, token)).status_code == 200
        idp.inactive.add(token)
        assert (await called(base, token)).status_code == 200
        now[0] += 6
        assert (await called(base, token)).status_code == 401


async def test_an_issuer_that_is_down_says_neither_yes_nor_no(idp: IdentityProvider) -> None:
    idp.is_down = True
    verifier = introspecting(idp, endpoint=f"{idp.issuer}/introspect")
    with pytest.raises(VerifierUnavailable):
        await verifier.verify_token("abc")
    async with served(whoami(Auth(RESOURCE, verifier=verifier))) as base:
        assert (await called(base, "abc")).status_code == 503


async def test_an_issuer_that_says_odd_things_is_not_believed(idp: IdentityProvider) -> None:
    odd: list[dict[str, Any]] = [
        {"exp": "2099"},
        {"exp": True},
        {"exp": []},
        {"exp": 0},
        {"exp": -1},
        {"iss": None},
        {"iss": "https://evil.example"},
        {"aud": None},
        {"aud": []},
        {"aud": {}},
        {"sub": None, "client_id": None},
        {"cnf": {"x5t#S256": "abc"}},
        {"active": "true"},
        {"active": 1},
    ]
    said: list[Any] = []

    async def introspect(_: Any) -> Response:
        now = int(time.time())
        token = {"active": True, "iss": issuer, "aud": RESOURCE, "sub": "zoe", "exp": now + 300}
        return JSONResponse({**token, **said[-1]})

    async with served(Starlette(routes=[Route("/i", introspect, methods=["POST"])])) as issuer:
        verifier = IntrospectionVerifier(
            issuer, client_id="server", client_secret="secret", endpoint=f"{issuer}/i"
        )
        async with served(whoami(Auth(RESOURCE, verifier=verifier))) as base:
            for place, each in enumerate([*odd, {}]):
                said.append(each)
                expected = 200 if not each else 401
                assert (each, (await called(base, f"token{place}")).status_code) == (each, expected)


class OfficialVerifier:
    """The shape of the official SDK's `TokenVerifier`, with its own `AccessToken`."""

    async def verify_token(self, token: str) -> AccessToken | None:
        if token != "good":
            return None
        return AccessToken(
            token=token,
            client_id="agent",
            scopes=["read"],
            resource=RESOURCE,
            subject="zoe",
            claims={"iss": "https://idp.example", "tenant": "acme"},
        )


async def test_a_verifier_of_the_official_sdk_is_taken_as_it_is() -> None:
    server: Server = whoami(Auth(RESOURCE, issuer="https://idp.example", verifier=OfficialVerifier()))
    async with served(server) as base:
        answer, refused = await called(base, "good"), await called(base, "bad")
        assert (await post(base, request("server/discover"))).status_code == 401
    assert answer.json()["result"]["structuredContent"] == {
        "subject": "zoe",
        "issuer": "https://idp.example",
        "client": "agent",
        "scopes": ["read"],
        "tenant": "acme",
    }
    assert refused.status_code == 401


@pytest.mark.parametrize(
    "odd",
    [
        {"token_use": "refresh_token"},
        {"token_type": "refresh_token"},
        {"typ": "ID"},
        {"sub": True},
        {"sub": ["zoe"]},
        {"sub": {"name": "zoe"}},
        {"sub": 5.0},
        {"client_id": ["app"]},
    ],
)
async def test_what_does_not_describe_an_access_token_is_refused(odd: dict[str, Any]) -> None:
    described = {"active": True, "sub": "zoe", "client_id": "app", "aud": RESOURCE, "token_type": "Bearer"}

    async def introspect(_: Any) -> Response:
        return JSONResponse(answers.pop())

    answers = [{**described, **odd}, described]
    async with served(Starlette(routes=[Route("/introspect", introspect, methods=["POST"])])) as issuer:
        verifier = IntrospectionVerifier(
            issuer, client_id="server", client_secret="secret", endpoint=f"{issuer}/introspect"
        )
        async with served(whoami(Auth(RESOURCE, verifier=verifier))) as base:
            assert [(await called(base, token)).status_code for token in ("a", "b")] == [200, 401]
