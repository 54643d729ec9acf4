"""DPoP (RFC 9449): a token that is bound to a key is good only with a fresh proof made with that key."""

import base64
import hashlib
import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import jwt
import pytest

from ekiden import Auth
from ekiden.server.auth.dpop import thumbprint
from tests.identity_provider import IdentityProvider, Key, new_key, public_jwk
from tests.serving import call, post, served

from .test_auth import RESOURCE, whoami


@pytest.fixture
async def idp() -> AsyncGenerator[IdentityProvider, None]:
    async with IdentityProvider().running() as provider:
        yield provider


def proof(key: Key, token: str, *, headers: dict[str, Any] | None = None, **claims: Any) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()
    said = {
        "jti": uuid.uuid4().hex,
        "htm": "POST",
        "htu": RESOURCE,
        "iat": int(time.time()),
        "ath": digest,
        **claims,
    }
    spelled = {"typ": "dpop+jwt", "jwk": public_jwk(key), **(headers or {})}
    present = {name: value for name, value in said.items() if value is not None}
    return jwt.encode(present, key, algorithm="ES256", headers=spelled)


async def presented(base: str, token: str, made: str | None, scheme: str = "DPoP") -> int:
    headers = {"authorization": f"{scheme} {token}", **({} if made is None else {"dpop": made})}
    return (await post(base, call("me"), **headers)).status_code


async def test_a_bound_token_needs_a_proof_of_its_key(idp: IdentityProvider) -> None:
    key, stranger = new_key(), new_key()
    token = idp.token(cnf={"jkt": thumbprint(public_jwk(key))})
    now = int(time.time())
    used = proof(key, token)
    private = jwt.algorithms.ECAlgorithm.to_jwk(key, as_dict=True)  # type: ignore[arg-type]
    secret = jwt.encode({"jti": "x"}, "s" * 64, algorithm="HS256", headers={"typ": "dpop+jwt"})
    async with served(whoami(Auth(RESOURCE, issuer=idp.issuer))) as base:
        assert await presented(base, token, used) == 200
        refused = {
            "used before": used,
            "none": None,
            "not a proof": "abc",
            "another key": proof(stranger, token),
            "another method": proof(key, token, htm="GET"),
            "another URL": proof(key, token, htu="https://evil.example/mcp"),
            "another token": proof(key, idp.token()),
            "old": proof(key, token, iat=now - 400),
            "of the future": proof(key, token, iat=now + 400),
            "no jti": proof(key, token, jti=None),
            "no ath": proof(key, token, ath=None),
            "another type": proof(key, token, headers={"typ": "jwt"}),
            "a private key": proof(key, token, headers={"jwk": private}),
            "no key": proof(key, token, headers={"jwk": None}),
            "a shared secret": secret,
            "an odd key": proof(key, token, headers={"jwk": {"kty": "EC", "crv": "P-256", "x": 5, "y": []}}),
            "another odd key": proof(key, token, headers={"jwk": {"kty": ["EC"], "crv": {}}}),
            "odd claims": proof(key, token, htu=5, htm=[], jti={}),
            "an odd time": proof(key, token, iat="now"),
            "signed by another": proof(stranger, token, headers={"jwk": public_jwk(key)}),
        }
        statuses = {what: await presented(base, token, made) for what, made in refused.items()}
        assert statuses == dict.fromkeys(refused, 401)
        fits = proof(key, token, htu=RESOURCE + "?a=b#c", iat=now - 200)
        assert await presented(base, token, fits) == 200
        # As a bearer token it is worth nothing, and a token without a key is not made better by a proof.
        assert await presented(base, token, proof(key, token), "Bearer") == 401
        assert await presented(base, token, None, "Bearer") == 401
        unbound = idp.token()
        assert await presented(base, unbound, proof(key, unbound)) == 401
        assert await presented(base, unbound, None, "Bearer") == 200
        answer = await post(base, call("me"), authorization=f"DPoP {token}", dpop="abc")
    challenge = answer.headers["www-authenticate"]
    assert challenge.startswith('DPoP error="invalid_dpop_proof"')
    assert 'algs="ES256' in challenge


async def test_the_id_of_a_proof_counts_only_for_its_own_key(idp: IdentityProvider) -> None:
    keys = new_key(), new_key()
    tokens = [
        idp.token(sub=name, cnf={"jkt": thumbprint(public_jwk(key))})
        for name, key in zip("ab", keys, strict=True)
    ]
    async with served(whoami(Auth(RESOURCE, issuer=idp.issuer))) as base:
        for expected in (200, 401):
            for key, token in zip(keys, tokens, strict=True):
                assert await presented(base, token, proof(key, token, jti="1")) == expected


async def test_tokens_without_a_key_can_be_refused(idp: IdentityProvider) -> None:
    key = new_key()
    bound = idp.token(cnf={"jkt": thumbprint(public_jwk(key))})
    async with served(whoami(Auth(RESOURCE, issuer=idp.issuer, dpop="required"))) as base:
        assert await presented(base, idp.token(), None, "Bearer") == 401
        assert await presented(base, bound, proof(key, bound)) == 200
        answer = await post(base, call("me"))
        document = (await _metadata(base)).json()
    assert answer.headers["www-authenticate"].startswith("DPoP ")
    assert document["dpop_bound_access_tokens_required"] is True


async def _metadata(base: str) -> Any:
    from tests.serving import post_raw

    return await post_raw(base, b"", {}, path="/.well-known/oauth-protected-resource", method="GET")


def test_the_thumbprint_is_that_of_the_rfc() -> None:
    """The example of RFC 7638, section 3.1."""
    key = {
        "kty": "RSA",
        "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebW"
        "KRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQM"
        "icAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcR"
        "wr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
        "e": "AQAB",
        "alg": "RS256",
        "kid": "2011-04-29",
    }
    assert thumbprint(key) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
