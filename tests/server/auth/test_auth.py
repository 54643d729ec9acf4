"""The resource server over HTTP: metadata, challenges, tokens, and who the caller is."""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from ekiden import Auth, Context, Principal, Server, StaticTokens, UsageError, VerifiedToken
from ekiden.server.auth import verifying
from ekiden.server.auth.jwt import JWTVerifier
from ekiden.signals import VerifierUnavailable
from tests.identity_provider import IdentityProvider
from tests.requirements.marks import requirement
from tests.serving import PATIENCE, call, headers_for, post, post_raw, request, served, soon

RESOURCE = "http://localhost/mcp"
METADATA = "http://localhost/.well-known/oauth-protected-resource/mcp"


@pytest.fixture
async def idp() -> AsyncGenerator[IdentityProvider, None]:
    async with IdentityProvider().running() as provider:
        yield provider


def whoami(auth: Auth) -> Server:
    server = Server("guarded", auth=auth)

    @server.tool
    async def me(ctx: Context) -> dict[str, Any]:
        assert ctx.principal is not None
        who = ctx.principal
        return {
            "subject": who.subject,
            "issuer": who.issuer,
            "client": who.client,
            "scopes": sorted(who.scopes),
            "tenant": who.claims.get("tenant"),
        }

    return server


async def called(base: str, token: str, scheme: str = "Bearer") -> httpx2.Response:
    return await post(base, call("me"), authorization=f"{scheme} {token}")


@requirement("AUTH-01", "AUTH-02", "AUTH-03")
@requirement("AUTH-03", "AUTH-04", "AUTH-05")
@requirement("AUTH-07")
@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
async def test_a_caller_is_who_its_token_says(idp: IdentityProvider, mounted: bool) -> None:
    server = whoami(Auth(RESOURCE, issuer=idp.issuer))
    async with served(server, mounted=mounted) as base:
        token = idp.token(scope="read", tenant="acme")
        answers = [await called(base, token), await called(base, token, "bearer")]
    for answer in answers:
        assert answer.json()["result"]["structuredContent"] == {
            "subject": "zoe",
            "issuer": idp.issuer,
            "client": "agent",
            "scopes": ["read"],
            "tenant": "acme",
        }
    assert idp.asked.count("/jwks") == 1


@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
async def test_who_has_no_valid_token_is_told_where_to_get_one(idp: IdentityProvider, mounted: bool) -> None:
    server = whoami(Auth(RESOURCE, issuer=idp.issuer, scopes=["read"]))
    scope, where = 'scope="read"', f'resource_metadata="{METADATA}"'
    async with served(server, mounted=mounted) as base:
        told = {
            what: await post(base, call("me"), **headers)
            for what, headers in {
                "none": {},
                "other scheme": {"authorization": "Basic Zm9vOmJhcg=="},
                "expired": {"authorization": f"Bearer {idp.token(exp=1)}"},
                "for another": {"authorization": f"Bearer {idp.token(aud='https://other.example')}"},
                "odd": {"authorization": "Bearer a b"},
                "empty": {"authorization": "Bearer"},
                "too little": {"authorization": f"Bearer {idp.token(scope='write')}"},
            }.items()
        }
    challenges = {what: (a.status_code, a.headers["www-authenticate"]) for what, a in told.items()}
    asks, invalid = f"Bearer {scope}, {where}", f'Bearer error="invalid_token", {scope}, {where}'
    assert challenges == {
        "none": (401, asks),
        "other scheme": (401, asks),
        "expired": (401, invalid),
        "for another": (401, invalid),
        "odd": (401, invalid),
        "empty": (401, invalid),
        "too little": (403, f'Bearer error="insufficient_scope", {scope}, {where}'),
    }
    # Why a token is not valid is nobody's business but the operator's.
    assert told["expired"].text == told["for another"].text == told["odd"].text


@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
async def test_a_token_comes_once_and_in_its_header(idp: IdentityProvider, mounted: bool) -> None:
    server = whoami(Auth(RESOURCE, issuer=idp.issuer))
    token = idp.token()
    body = json.dumps(call("me")).encode()
    async with served(server, mounted=mounted) as base, httpx2.AsyncClient(trust_env=False) as http:
        bearer = ("authorization", f"Bearer {token}")
        headers = list(headers_for(call("me")).items())
        asked = [
            await http.post(f"{base}/mcp?access_token={token}", content=body, headers=headers),
            await http.post(f"{base}/mcp?access_token={token}", content=body, headers=[*headers, bearer]),
            await http.post(f"{base}/mcp?a=1&access%5Ftoken=x", content=body, headers=[*headers, bearer]),
            await http.post(f"{base}/mcp", content=body, headers=[*headers, bearer, bearer]),
            await http.post(f"{base}/mcp?a=100%25", content=body, headers=[*headers, bearer]),
        ]
    assert [answer.status_code for answer in asked] == [400, 400, 400, 400, 200]
    assert 'error="invalid_request"' in asked[0].headers["www-authenticate"]


@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
async def test_the_metadata_is_there_for_everybody(idp: IdentityProvider, mounted: bool) -> None:
    server = whoami(Auth(RESOURCE, issuer=idp.issuer, scopes=["read"], name="Guarded"))
    async with served(server, mounted=mounted) as base:
        path = "/.well-known/oauth-protected-resource"
        found = [await post_raw(base, b"", {}, path=path + rest, method="GET") for rest in ("", "/mcp")]
        other = await post_raw(base, b"", {}, path=path + "/other", method="GET")
        posted = await post_raw(base, b"x", {}, path=path)
        preflight = await post_raw(base, b"", {"origin": "http://localhost"}, path=path, method="OPTIONS")
    for answer in found:
        document = answer.json()
        assert document.pop("dpop_signing_alg_values_supported")
        assert document == {
            "resource": RESOURCE,
            "authorization_servers": [idp.issuer],
            "bearer_methods_supported": ["header"],
            "scopes_supported": ["read"],
            "resource_name": "Guarded",
        }
        assert answer.headers["access-control-allow-origin"] == "*"
    assert [other.status_code, posted.status_code, preflight.status_code] == [404, 405, 204]


async def test_below_another_path_the_application_mounts_the_metadata(idp: IdentityProvider) -> None:
    server = whoami(Auth("http://localhost/tools/mcp", issuer=idp.issuer))
    well_known = "/.well-known/oauth-protected-resource"
    routes = [Mount(well_known, server.auth_metadata()), Mount("/tools", server.asgi())]
    async with served(Starlette(routes=routes, lifespan=server.running)) as base:
        refused = await post(base, call("me"), path="/tools/mcp")
        where = refused.headers["www-authenticate"].partition('resource_metadata="')[2].rstrip('"')
        assert where == f"http://localhost{well_known}/tools/mcp"
        found = await post_raw(base, b"", {}, path=where.removeprefix("http://localhost"), method="GET")
        assert found.json()["resource"] == "http://localhost/tools/mcp"
        token = idp.token(aud="http://localhost/tools/mcp")
        called = await post(base, call("me"), path="/tools/mcp", authorization=f"Bearer {token}")
        assert called.status_code == 200


@requirement("AUTH-11")
async def test_a_broader_scope_includes_what_it_implies(idp: IdentityProvider) -> None:
    auth = Auth(RESOURCE, issuer=idp.issuer, scopes=["read"], implies={"admin": ["write"], "write": ["read"]})
    async with served(whoami(auth)) as base:
        answer = await called(base, idp.token(scope="admin"))
    assert answer.json()["result"]["structuredContent"]["scopes"] == ["admin", "read", "write"]


@requirement("AUTH-06")
async def test_a_token_is_for_this_server_however_its_url_is_written(idp: IdentityProvider) -> None:
    auth = Auth("http://LOCALHOST/mcp/", issuer=idp.issuer, audience="api://mine")
    async with served(whoami(auth)) as base:
        for audience in ("http://localhost/mcp", ["other", "http://localhost/mcp/"], "api://mine"):
            assert (await called(base, idp.token(aud=audience))).status_code == 200
        for audience in ("http://localhost", "http://localhost/mcp/x", "https://localhost/mcp"):
            assert (await called(base, idp.token(aud=audience))).status_code == 401


async def test_a_verified_token_expires_although_it_is_known(idp: IdentityProvider) -> None:
    now = [1000.0]
    principal = Principal("zoe")

    class Hour:
        checks_audience = True

        async def verify_token(self, token: str) -> VerifiedToken:
            return VerifiedToken(subject=principal.subject, expires_at=1010.0)

    async with served(whoami(Auth(RESOURCE, verifier=Hour(), clock=lambda: now[0]))) as base:
        assert (await called(base, "abc")).status_code == 200
        now[0] = 1011.0
        assert (await called(base, "abc")).status_code == 401


async def test_the_same_token_is_verified_once_for_all_who_send_it() -> None:
    asked: list[str] = []
    go_on = asyncio.Event()

    class Slow:
        checks_audience = True

        async def verify_token(self, token: str) -> VerifiedToken:
            asked.append(token)
            await go_on.wait()
            return VerifiedToken(subject="zoe")

    async with served(whoami(Auth(RESOURCE, verifier=Slow()))) as base:
        calls = [asyncio.create_task(called(base, "abc")) for _ in range(5)]
        while not asked:
            await asyncio.sleep(0.001)
        go_on.set()
        assert [(await each).status_code for each in calls] == [200] * 5
    assert asked == ["abc"]


async def test_a_verifier_that_cannot_say_is_not_taken_for_a_no(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        async def verify_token(self, token: str) -> VerifiedToken:
            raise VerifierUnavailable("no network") if token == "away" else ZeroDivisionError

    async with served(whoami(Auth(RESOURCE, verifier=Broken()))) as base:
        answers = [await called(base, "away"), await called(base, "bug")]
    assert [(a.status_code, a.headers["retry-after"]) for a in answers] == [(503, "5")] * 2
    assert "ZeroDivisionError" in caplog.text
    assert "no network" not in answers[0].text


@pytest.mark.parametrize("addresses", [1, 2, 10])
@pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])
async def test_invented_tokens_of_some_addresses_do_not_keep_others_out(
    mounted: bool, addresses: int
) -> None:
    may_end = asyncio.Event()

    class Slow:
        async def verify_token(self, token: str) -> VerifiedToken | None:
            if token.startswith("invented"):
                await may_end.wait()
            return None

    async def sent(base: str, token: str, address: int) -> httpx2.Response:
        elsewhere = httpx2.AsyncHTTPTransport(local_address=f"127.0.0.{address}", verify=False)
        async with httpx2.AsyncClient(transport=elsewhere, trust_env=False, timeout=PATIENCE) as http:
            headers = {**headers_for(call("me")), "authorization": f"Bearer {token}"}
            return await http.post(base + "/mcp", json=call("me"), headers=headers)

    verifiers = [Slow(), StaticTokens({"t": Principal("bob")})]
    server = whoami(Auth(RESOURCE, verifier=verifiers))
    async with served(server, mounted=mounted) as base:
        flood = [
            asyncio.create_task(sent(base, f"invented{number}", 2 + number % addresses))
            for number in range(35 * addresses if addresses < 3 else 70)
        ]
        first = [await soon(each) for each in itertools.islice(asyncio.as_completed(flood), 3)]
        other = await sent(base, "t", 100)
        may_end.set()
        last = [await soon(each) for each in flood]
        later = await called(base, "t")
    assert {answer.status_code for answer in first} == {503}
    assert (other.status_code, later.status_code) == (200, 200)
    assert {answer.status_code for answer in last} == {401, 503}


async def test_a_verifier_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifying, "_LONGEST_SECONDS", 0.05)

    class Hanging:
        async def verify_token(self, token: str) -> VerifiedToken | None:
            await asyncio.Event().wait()
            return None

    async with served(whoami(Auth(RESOURCE, verifier=Hanging()))) as base:
        assert (await soon(called(base, "t"))).status_code == 503


async def test_all_addresses_of_one_ipv6_network_share_their_places() -> None:
    async def never(token: bytes, digest: bytes) -> None:
        await asyncio.Event().wait()

    verifications = verifying.Verifications(never)
    begun = [verifications.begin(b"t", b"%d" % number, f"2001:db8::{number:x}") for number in range(40)]
    other = verifications.begin(b"t", b"other", "2001:db8:0:1::1")
    tasks = [task for task in (*begun, other) if task is not None]
    assert len(tasks) == 33
    assert other is not None
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_several_verifiers_are_asked_in_turn(idp: IdentityProvider) -> None:
    from ekiden import JWTVerifier

    async with IdentityProvider().running() as other:
        other.user = "ann"
        verifiers = [
            JWTVerifier(idp.issuer),
            JWTVerifier(other.issuer),
            StaticTokens({"t": Principal("bob")}),
        ]
        async with served(whoami(Auth(RESOURCE, verifier=verifiers))) as base:
            answers = [await called(base, token) for token in (idp.token(), other.token(), "t", "u")]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 401]
    subjects = [answer.json()["result"]["structuredContent"]["subject"] for answer in answers[:3]]
    assert subjects == ["zoe", "ann", "bob"]


async def test_a_verifier_must_say_for_whom_a_token_is() -> None:
    class Vague:
        async def verify_token(self, token: str) -> VerifiedToken:
            return VerifiedToken(subject="zoe", resource=RESOURCE if token == "mine" else None)

    async with served(whoami(Auth(RESOURCE, verifier=Vague()))) as base:
        assert [(await called(base, token)).status_code for token in ("mine", "abc")] == [200, 401]
    async with served(whoami(Auth(RESOURCE, verifier=Vague(), audience=None))) as base:
        assert (await called(base, "abc")).status_code == 200


async def test_static_tokens_are_for_trying_out() -> None:
    auth = Auth(RESOURCE, verifier=StaticTokens({"secret": Principal("zoe", scopes=frozenset({"a"}))}))
    async with served(whoami(auth)) as base:
        answer = await called(base, "secret")
        refused = await called(base, "other")
        nothing = await post_raw(base, b"", {}, path="/.well-known/oauth-protected-resource", method="GET")
    assert answer.json()["result"]["structuredContent"]["scopes"] == ["a"]
    assert refused.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert nothing.status_code == 404  # No authorization server, so there is nothing to tell.


async def test_a_server_without_auth_asks_for_nothing() -> None:
    server = Server("open")
    async with served(server) as base:
        assert (await post(base, request("server/discover"), authorization="Bearer x")).status_code == 200
    with pytest.raises(UsageError, match="no metadata"):
        server.auth_metadata()


def test_mistakes_are_told_at_once() -> None:
    with pytest.raises(UsageError, match="issuer="):
        Auth(RESOURCE)
    with pytest.raises(UsageError, match="https URL"):
        Auth("mcp.example.com", issuer="https://idp.example")
    with pytest.raises(UsageError, match="is a list"):
        Auth(RESOURCE, issuer="https://idp.example", scopes="read")
    with pytest.raises(UsageError, match="not a scope"):
        Auth(RESOURCE, issuer="https://idp.example", scopes=["read write"])
    with pytest.raises(UsageError, match="verify_token"):
        Auth(RESOURCE, verifier=object())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="at least one token"):
        StaticTokens({"": Principal("zoe")})


async def test_an_auth_of_which_nobody_checks_for_whom_a_token_was_issued_is_refused(
    idp: IdentityProvider,
) -> None:
    with pytest.raises(UsageError, match="give the JWTVerifier an audience="):
        Auth(RESOURCE, issuer=idp.issuer, audience=None)
    with pytest.raises(UsageError, match="give the JWTVerifier an audience="):
        Auth(
            RESOURCE,
            verifier=[JWTVerifier(idp.issuer, audience="api://a"), JWTVerifier(idp.issuer)],
            audience=None,
        )
    assert Auth(RESOURCE, verifier=JWTVerifier(idp.issuer, audience="api://a"), audience=None)
