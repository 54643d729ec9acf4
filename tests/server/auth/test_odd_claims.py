"""Claims that PyJWT reads although they are not JSON, or mean nothing: each is a 401, and never a fault."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from ekiden import Auth
from ekiden.server.auth.dpop import thumbprint
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
