"""Authorization for `conformance/client.py`: the official package's providers, and what they lack."""

import hashlib
import json
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from ekiden import TransportError

CALLBACK = AnyUrl("http://localhost:3030/callback")
METADATA_DOCUMENT = "https://conformance-test.local/client-metadata.json"
"""The client id that the suite knows for clients that have no registration."""

REFUSALS = (OAuthFlowError, TransportError)
"""How a client gives up: in the provider, or because the server keeps saying no."""

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


async def provider(scenario: str, url: str, context: dict[str, Any]) -> httpx2.Auth:
    """Who authorizes the client in a scenario."""
    match scenario:
        case "auth/client-credentials-basic":
            return ClientCredentialsOAuthProvider(
                url, Memory(), context["client_id"], context["client_secret"]
            )
        case "auth/client-credentials-jwt":
            return signing(url, context)
        case "auth/enterprise-managed-authorization":
            return await employed(url, context)
        case "auth/wif-jwt-bearer":
            return WorkloadIdentity(url, context["client_id"], context["valid_jwt"])
        case "auth/dpop" | "auth/dpop-nonce":
            return ProofOfPossession(browsing(url))
        case "auth/pre-registration":
            return browsing(url, preregistered(context))
        case _:
            return browsing(url)


class Memory:
    """Token storage for as long as the process lives."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._client = client
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """The tokens, if there are any."""
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep the tokens."""
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """The registration, if there is one."""
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep the registration."""
        self._client = client_info


class Browser:
    """The user and the browser: agrees to everything, and never follows the redirect home."""

    def __init__(self) -> None:
        self._arrived: dict[str, list[str]] = {}

    async def open(self, url: str) -> None:
        """Go to the authorization server."""
        async with httpx2.AsyncClient(timeout=60) as http:
            response = await http.get(url, follow_redirects=False)
        self._arrived = parse_qs(urlsplit(response.headers["location"]).query)

    async def result(self) -> AuthorizationCodeResult:
        """What it wanted to send home with us."""
        values = {name: found[0] for name, found in self._arrived.items()}
        return AuthorizationCodeResult(code=values["code"], state=values.get("state"), iss=values.get("iss"))


def browsing(url: str, client: OAuthClientInformationFull | None = None) -> OAuthClientProvider:
    """The authorization code flow, with a registration if there is one already."""
    browser = Browser()
    return OAuthClientProvider(
        url,
        OAuthClientMetadata(client_name="ekiden-conformance", redirect_uris=[CALLBACK]),
        Memory(client),
        browser.open,
        browser.result,
        client_metadata_url=METADATA_DOCUMENT,
    )


def preregistered(context: dict[str, Any]) -> OAuthClientInformationFull:
    return OAuthClientInformationFull(
        client_id=context["client_id"],
        client_secret=context["client_secret"],
        issuer=context["issuer"],
        redirect_uris=[CALLBACK],
        token_endpoint_auth_method="client_secret_basic",
    )


def signing(url: str, context: dict[str, Any]) -> PrivateKeyJWTOAuthProvider:
    """A client that authenticates by signing with its own key."""
    name = context["client_id"]
    signed = SignedJWTParameters(
        issuer=name,
        subject=name,
        signing_key=context["private_key_pem"],
        signing_algorithm=context["signing_algorithm"],
    )
    return PrivateKeyJWTOAuthProvider(url, Memory(), name, signed.create_assertion_provider())


async def employed(url: str, context: dict[str, Any]) -> IdentityAssertionOAuthProvider:
    """An employee's client: the identity provider of the enterprise vouches for it."""

    async def grant(audience: str, resource: str) -> str:
        fields = {
            "grant_type": TOKEN_EXCHANGE,
            "client_id": context["idp_client_id"],
            "subject_token": context["idp_id_token"],
            "subject_token_type": ID_TOKEN,
            "requested_token_type": ID_JAG,
            "audience": audience,
            "resource": resource,
        }
        async with httpx2.AsyncClient(timeout=60) as http:
            response = await http.post(context["idp_token_endpoint"], data=fields)
        return str(response.raise_for_status().json()["access_token"])

    return IdentityAssertionOAuthProvider(
        url,
        Memory(),
        context["client_id"],
        context["client_secret"],
        await authorization_server(url),
        grant,
        token_endpoint_auth_method="client_secret_basic",
    )


async def authorization_server(url: str) -> str:
    """The issuer that an enterprise would have configured; the suite only tells it in the metadata."""
    parts = urlsplit(url)
    async with httpx2.AsyncClient(timeout=60) as http:
        response = await http.get(
            f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
        )
    return str(response.raise_for_status().json()["authorization_servers"][0])


class WorkloadIdentity(OAuthClientProvider):
    """A workload shows the JWT that its platform gave it (RFC 7523, SEP-1933). It does so once."""

    def __init__(self, url: str, client_id: str, assertion: str) -> None:
        client = OAuthClientInformationFull(client_id=client_id, grant_types=[JWT_BEARER])
        metadata = OAuthClientMetadata(redirect_uris=None, grant_types=[JWT_BEARER])
        super().__init__(url, metadata, Memory(client))
        self._client_id = client_id
        self._assertion = assertion

    async def _perform_authorization(self) -> httpx2.Request:
        fields = {
            "grant_type": JWT_BEARER,
            "assertion": self._assertion,
            "client_id": self._client_id,
            "resource": self.context.get_resource_url(),
        }
        if self.context.client_metadata.scope:
            fields["scope"] = self.context.client_metadata.scope
        return httpx2.Request("POST", self._get_token_endpoint(), data=fields)


class ProofOfPossession(httpx2.Auth):
    """DPoP (RFC 9449, SEP-1932) around a provider that only knows bearer tokens.

    Every token request and every request with a token carries a new proof that we hold the key. A
    server that wants its nonce in the proof says so once; from then on the nonce is in every proof.
    """

    requires_response_body = True

    def __init__(self, bearer: httpx2.Auth) -> None:
        self._bearer = bearer
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._public = json.loads(ECAlgorithm.to_jwk(self._key.public_key()))
        self._nonces: dict[str, str] = {}

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The requests of the other provider, each with its proof."""
        flow = self._bearer.async_auth_flow(request)
        try:
            sent = await anext(flow)
            while True:
                self._prove(sent)
                response = yield sent
                if self._learns_nonce(response):
                    self._prove(sent)
                    response = yield sent
                sent = await flow.asend(await _as_bearer(response))
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def _prove(self, request: httpx2.Request) -> None:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme in ("Bearer", "DPoP"):
            request.headers["Authorization"] = f"DPoP {token}"
            request.headers["DPoP"] = self._proof(request, token)
        elif "x-www-form-urlencoded" in request.headers.get("content-type", ""):
            request.headers["DPoP"] = self._proof(request, None)

    def _proof(self, request: httpx2.Request, token: str | None) -> str:
        url = request.url.copy_with(query=None, fragment=None)
        claims = {"jti": str(uuid.uuid4()), "htm": request.method, "htu": str(url), "iat": int(time.time())}
        if token is not None:
            digest = hashlib.sha256(token.encode()).digest()
            claims["ath"] = urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (nonce := self._nonces.get(_origin(request))) is not None:
            claims["nonce"] = nonce
        return jwt.encode(claims, self._key, "ES256", headers={"typ": "dpop+jwt", "jwk": self._public})

    def _learns_nonce(self, response: httpx2.Response) -> bool:
        """Remember the nonce that a server gives; whether it refused the request for the lack of it."""
        nonce = response.headers.get("dpop-nonce")
        if nonce is None:
            return False
        origin = _origin(response.request)
        known = self._nonces.get(origin) == nonce
        self._nonces[origin] = nonce
        return response.status_code in (400, 401) and not known


def _origin(request: httpx2.Request) -> str:
    return f"{request.url.scheme}://{request.url.netloc.decode()}"


async def _as_bearer(response: httpx2.Response) -> httpx2.Response:
    """A token response in the words that the official provider understands."""
    if response.status_code != 200 or "json" not in response.headers.get("content-type", ""):
        return response
    answer: Any = json.loads(await response.aread())
    if not isinstance(answer, dict) or answer.get("token_type") != "DPoP":
        return response
    return httpx2.Response(200, json={**answer, "token_type": "Bearer"}, request=response.request)
