"""Claims that PyJWT reads although they are not JSON, or mean nothing: each is a 401, and never a fault."""

import base64
import json
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from ekiden import Auth
from ekiden.server.auth.dpop import Proofs, thumbprint
from tests.identity_provider import IdentityProvider, new_key, public_jwk
from tests.serving import served

from .test_auth import RESOURCE, called, whoami
from .test_dpop import presented, proof

ODD: dict[str, Any] = {
    "not a number": float("nan"),
    "endless": float("inf"),
    "too long": 10**400,
    "half a character": "\ud800",
    "a list": [],
    "an object": {},
}
BOTH = pytest.mark.parametrize("mounted", [False, True], ids=["own", "mounted"])


@pytest.fixture
async def idp() -> AsyncGenerator[IdentityProvider, None]:
    async with IdentityProvider().running() as provider:
        yield provider


@BOTH
async def test_a_token_with_an_odd_claim_is_not_valid(idp: IdentityProvider, mounted: bool) -> None:
    named = {
        f"{claim}: {what}": idp.token(**{claim: odd})
        for claim in ("exp", "nbf", "iat", "sub", "aud")
        for what, odd in ODD.items()
    }
    for what in ("not a number", "too long", "half a character"):
        named[f"client_id: {what}"] = idp.token(client_id=ODD[what])
        named[f"any other claim: {what}"] = idp.token(tenant=ODD[what])
    named["aud: not a URL"] = idp.token(aud="http://[")
    async with served(whoami(Auth(RESOURCE, issuer=idp.issuer)), mounted=mounted) as base:
        statuses = {what: (await called(base, token)).status_code for what, token in named.items()}
    assert statuses == dict.fromkeys(named, 401)


@BOTH
async def test_a_proof_with_an_odd_claim_is_not_valid(idp: IdentityProvider, mounted: bool) -> None:
    key = new_key()
    token = idp.token(cnf={"jkt": thumbprint(public_jwk(key))})
    proofs = {
        f"{claim}: {what}": proof(key, token, **{claim: odd})
        for claim in ("iat", "jti", "htm", "htu", "ath")
        for what, odd in ODD.items()
        if claim != "jti" or isinstance(odd, str)  # PyJWT does not write others.
    }
    async with served(whoami(Auth(RESOURCE, issuer=idp.issuer)), mounted=mounted) as base:
        statuses = {what: await presented(base, token, made) for what, made in proofs.items()}
        assert statuses == dict.fromkeys(proofs, 401)
        assert await presented(base, token, proof(key, token)) == 200


@BOTH
async def test_a_token_that_is_bound_to_what_nobody_checks_is_not_valid(
    idp: IdentityProvider, mounted: bool
) -> None:
    bound: list[Any] = [
        {"x5t#S256": "abc"},
        {"jwk": {}},
        {"kid": "a"},
        {"jkt": 5},
        {"jkt": ""},
        {},
        [],
        "a",
        1,
    ]
    async with served(whoami(Auth(RESOURCE, issuer=idp.issuer)), mounted=mounted) as base:
        for each in bound:
            token = idp.token(cnf=each)
            for scheme in ("Bearer", "DPoP"):
                assert (each, await presented(base, token, None, scheme)) == (each, 401)


def _number(bits: int) -> str:
    return _base64url((1 << (bits - 1) | 1).to_bytes((bits + 7) // 8, "big"))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unsigned(key: dict[str, Any], algorithm: str) -> bytes:
    """A proof with a signature that is none."""
    head = {"typ": "dpop+jwt", "alg": algorithm, "jwk": key}
    claims = {"jti": "1", "htm": "POST", "htu": RESOURCE, "iat": 1000, "ath": "x"}
    parts = [_base64url(json.dumps(part).encode()) for part in (head, claims)]
    return ".".join([*parts, _base64url(b"s" * 256)]).encode()


def test_a_key_that_would_take_long_is_not_used() -> None:
    for bits, exponent, is_used in [
        (2048, 17, True),
        (4096, 17, True),
        (1024, 17, False),
        (3072, 3071, False),
        (4096, 64, False),
        (16384, 17, False),
    ]:
        key = {"kty": "RSA", "n": _number(bits), "e": _number(exponent)}
        problem = Proofs(RESOURCE).problem(_unsigned(key, "RS256"), "t", thumbprint(key), "POST", 1000.0)
        expected = "InvalidSignatureError" if is_used else "takes too long"
        assert (bits, exponent, expected in (problem or "")) == (bits, exponent, True)


def _odd_keys(source: random.Random) -> dict[str, Any]:
    values = ["", "AQAB", "!!", _number(2048), "A" * 43, "A" * 700, 5, None, [], {}, "\u00e9", True]
    names = ("n", "e", "x", "y", "crv", "alg", "use", "key_ops", "x5c")
    key = {name: source.choice(values) for name in source.sample(names, 4)}
    key["kty"] = source.choice(["RSA", "EC", "OKP", "oct", "", None, 5, ["RSA"]])
    key["crv"] = source.choice(["P-256", "P-521", "secp256k1", "Ed25519", "Ed448", "X25519", "", 5, None])
    return key


def test_whatever_key_a_proof_has_it_is_refused_in_words() -> None:
    for seed in range(2000):
        source = random.Random(seed)
        key = _odd_keys(source)
        made = _unsigned(key, source.choice(["RS256", "PS512", "ES256", "ES512", "EdDSA"]))
        problem = Proofs(RESOURCE).problem(made, "t", thumbprint(key), "POST", 1000.0)
        assert problem is not None, (seed, key)
