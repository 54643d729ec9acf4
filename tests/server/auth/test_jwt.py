"""JWTs, verified with real keys of a real issuer."""

import asyncio
import base64
import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from ekiden import JWTVerifier, UsageError
from ekiden.signals import VerifierUnavailable
from tests.identity_provider import IdentityProvider, new_key, public_jwk
from tests.serving import PATIENCE

ME = "http://localhost/mcp"


@pytest.fixture
async def idp() -> AsyncGenerator[IdentityProvider, None]:
    async with IdentityProvider().running() as provider:
        yield provider


def verifier_of(idp: IdentityProvider, **options: Any) -> JWTVerifier:
    return JWTVerifier(idp.issuer, **{"audience": ME, **options})


async def test_a_valid_token_says_who_and_what(idp: IdentityProvider) -> None:
    verifier = verifier_of(idp)
    found = await verifier.verify_token(idp.token(scope="read pay", tenant="acme"))
    assert found is not None
    assert (found.subject, found.client_id, found.scopes) == ("zoe", "agent", ["read", "pay"])
    assert found.claims["tenant"] == "acme"
    assert found.expires_at is not None
    assert found.expires_at > time.time()
    assert idp.asked == ["/.well-known/oauth-authorization-server", "/jwks"]
    await verifier.verify_token(idp.token())
    assert len(idp.asked) == 2


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
async def test_each_kind_of_key_is_used(idp: IdentityProvider, algorithm: str) -> None:
    idp.rotate("new", algorithm)
    assert await verifier_of(idp).verify_token(idp.token()) is not None


async def test_what_is_wrong_with_a_token_makes_it_invalid(idp: IdentityProvider) -> None:
    now = int(time.time())
    key = idp.keys["one"][1]
    stolen = idp.keys
    idp.keys = {"one": ("ES256", new_key())}
    forged = idp.token()
    idp.keys = stolen
    head, body, signature = idp.token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    changed = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "eve"}).encode()).rstrip(b"=").decode()
    pem = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    public = base64.urlsafe_b64encode(pem).decode()
    wrong = {
        "expired": idp.token(exp=now - 60),
        "no expiry": idp.token(exp=None),
        "not yet": idp.token(nbf=now + 60),
        "issued in the future": idp.token(iat=now + 600),
        "other audience": idp.token(aud="https://other.example/mcp"),
        "no audience": idp.token(aud=None),
        "other issuer": idp.token(iss="https://evil.example"),
        "no issuer": idp.token(iss=None),
        "an ID token's type": idp.token(headers={"typ": "id_token+jwt"}),
        "a DPoP proof": idp.token(headers={"typ": "dpop+jwt"}),
        "critical": idp.token(headers={"crit": ["exp2"], "exp2": 1}),
        "forged": forged,
        "changed": f"{head}.{changed}.{signature}",
        "unsigned": jwt.encode(claims, None, algorithm="none"),
        "no signature": f"{head}.{body}.",
        "a shared secret": jwt.encode(claims, public, algorithm="HS256", headers={"kid": "one"}),
        "unknown key": idp.token(headers={"kid": "two"}),
        "odd key id": idp.token(headers={"kid": None}) + "x",
        "not a JWT": "abc",
        "two parts": "abc.def",
        "empty": "",
    }
    verifier = verifier_of(idp, refresh_seconds=0.0)
    found = {what: await verifier.verify_token(token) for what, token in wrong.items()}
    assert [what for what, known in found.items() if known is not None] == []


async def test_clocks_may_differ_a_little(idp: IdentityProvider) -> None:
    now = int(time.time())
    verifier = verifier_of(idp)
    assert await verifier.verify_token(idp.token(exp=now - 10)) is not None
    assert await verifier.verify_token(idp.token(nbf=now + 10)) is not None
    assert await verifier_of(idp, leeway=0).verify_token(idp.token(exp=now - 10)) is None


async def test_scopes_come_as_text_or_as_a_list(idp: IdentityProvider) -> None:
    verifier = verifier_of(idp, scopes=["base"])
    tokens = [idp.token(scope=None, scp=["a", "b"]), idp.token(scope=None, scp="a b"), idp.token(scope="a b")]
    found = [await verifier.verify_token(token) for token in tokens]
    assert [None if each is None else each.scopes for each in found] == [["a", "b", "base"]] * 3


async def test_a_workload_is_known_by_its_subject(idp: IdentityProvider) -> None:
    verifier = verifier_of(idp, subjects=["system:serviceaccount:shop:agent"], scopes=["pay"])
    mine = idp.token(sub="system:serviceaccount:shop:agent", client_id=None, scope=None)
    found = await verifier.verify_token(mine)
    assert found is not None
    assert (found.subject, found.client_id, found.scopes) == (
        "system:serviceaccount:shop:agent",
        "",
        ["pay"],
    )
    assert await verifier.verify_token(idp.token(sub="system:serviceaccount:shop:other")) is None


async def test_a_new_key_is_fetched_when_a_token_names_it(idp: IdentityProvider) -> None:
    verifier = verifier_of(idp, refresh_seconds=0.0)
    assert await verifier.verify_token(idp.token()) is not None
    old = idp.token()
    idp.rotate("two", keep=False)
    assert await verifier.verify_token(idp.token()) is not None
    assert await verifier.verify_token(old) is None


async def test_invented_key_ids_do_not_make_us_fetch_again_and_again(idp: IdentityProvider) -> None:
    verifier = verifier_of(idp, refresh_seconds=60.0)
    for number in range(20):
        assert await verifier.verify_token(idp.token(headers={"kid": f"invented {number}"})) is None
    assert idp.asked.count("/jwks") == 1


async def test_known_keys_stay_when_the_issuer_is_down(idp: IdentityProvider) -> None:
    verifier = verifier_of(idp, keys_seconds=0.0, refresh_seconds=0.0)
    assert await verifier.verify_token(idp.token()) is not None
    idp.is_down = True
    assert await verifier.verify_token(idp.token()) is not None
    async with asyncio.timeout(PATIENCE):  # They are fetched meanwhile.
        while idp.asked.count("/jwks") < 2:
            await asyncio.sleep(0.001)
    assert await verifier.verify_token(idp.token()) is not None
    await verifier.close()


async def test_without_any_keys_a_token_cannot_be_verified(idp: IdentityProvider) -> None:
    idp.is_down = True
    verifier = verifier_of(idp, refresh_seconds=60.0)
    for _ in range(3):
        with pytest.raises(VerifierUnavailable, match="no keys"):
            await verifier.verify_token(idp.token())
    assert idp.asked.count("/jwks") == 1


async def test_metadata_of_another_issuer_is_not_used(idp: IdentityProvider) -> None:
    there = idp.issuer
    idp.issuer = "https://honest.example"
    token = idp.token(iss=there)
    with pytest.raises(VerifierUnavailable, match="is about issuer 'https://honest"):
        await JWTVerifier(there, audience=ME).verify_token(token)


def test_only_asymmetric_algorithms_can_be_allowed() -> None:
    for bad in ("HS256", "none"):
        with pytest.raises(UsageError, match="asymmetric"):
            JWTVerifier("https://idp.example", algorithms=["ES256", bad])
    with pytest.raises(UsageError, match="https"):
        JWTVerifier("http://idp.example")


def test_the_keys_that_are_published_are_public() -> None:
    assert "d" not in public_jwk(new_key())
