"""A small identity provider over real HTTP: metadata, keys, registration, codes, tokens, introspection."""

import base64
import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.serving import served

Key = EllipticCurvePrivateKey | RSAPrivateKey


def new_key(algorithm: str = "ES256") -> Key:
    if algorithm.startswith(("RS", "PS")):
        return rsa.generate_private_key(65537, 2048)
    return ec.generate_private_key(ec.SECP256R1())


def public_jwk(key: Key, **more: Any) -> dict[str, Any]:
    kind: Any = jwt.algorithms.RSAAlgorithm if isinstance(key, RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**kind.to_jwk(key.public_key(), as_dict=True), **more}


class IdentityProvider:
    """What it has issued, and what it was asked. `issuer` is set once it is served."""

    def __init__(self) -> None:
        self.issuer = ""
        self.keys: dict[str, tuple[str, Key]] = {"one": ("ES256", new_key())}
        self.signs_with = "one"
        self.user = "zoe"
        self.granted: set[str] | None = None
        """The scopes that the user grants; None: all that are asked for."""
        self.clients: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, Any]] = {}
        self.refreshes: dict[str, dict[str, Any]] = {}
        self.inactive: set[str] = set()
        self.asked: list[str] = []
        """The paths of all requests, in order."""
        self.token_seconds = 300
        self.is_down = False

    # Tokens

    def token(
        self, *, kid: str | None = None, headers: Mapping[str, Any] | None = None, **claims: Any
    ) -> str:
        """A token; a claim of None is left out."""
        now = int(time.time())
        said = {
            "iss": self.issuer,
            "sub": self.user,
            "aud": "http://localhost/mcp",
            "client_id": "agent",
            "scope": "",
            "iat": now,
            "exp": now + self.token_seconds,
            "jti": secrets.token_hex(8),
            **claims,
        }
        name = kid or self.signs_with
        algorithm, key = self.keys[name]
        spelled = {"kid": name, "typ": "at+jwt", **(headers or {})}
        return jwt.encode(
            {claim: value for claim, value in said.items() if value is not None},
            key,
            algorithm=algorithm,
            headers={header: value for header, value in spelled.items() if value is not None},
        )

    def rotate(self, name: str, algorithm: str = "ES256", *, keep: bool = True) -> None:
        if not keep:
            self.keys.clear()
        self.keys[name] = (algorithm, new_key(algorithm))
        self.signs_with = name

    # Endpoints

    async def metadata(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "registration_endpoint": f"{self.issuer}/register",
                "introspection_endpoint": f"{self.issuer}/introspect",
                "jwks_uri": f"{self.issuer}/jwks",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": [
                    "none",
                    "client_secret_post",
                    "client_secret_basic",
                ],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
                "client_id_metadata_document_supported": True,
            }
        )

    async def jwks(self, request: Request) -> Response:
        if self.is_down:
            return Response(status_code=500)
        keys = [public_jwk(key, kid=kid, alg=algorithm) for kid, (algorithm, key) in self.keys.items()]
        return JSONResponse({"keys": keys})

    async def register(self, request: Request) -> Response:
        wanted = await request.json()
        client_id = secrets.token_hex(4)
        self.clients[client_id] = {**wanted, "client_id": client_id}
        return JSONResponse({**self.clients[client_id], "client_id_issued_at": int(time.time())}, 201)

    async def authorize(self, request: Request) -> Response:
        """The user is signed in already, and agrees to everything."""
        query = dict(request.query_params)
        code = secrets.token_hex(8)
        self.codes[code] = query
        answer = {"code": code, "state": query.get("state", ""), "iss": self.issuer}
        return RedirectResponse(f"{query['redirect_uri']}?{urlencode(answer)}", 302)

    async def exchange(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        if form["grant_type"] == "refresh_token":
            about = self.refreshes.pop(form["refresh_token"], None)
        else:
            about = self.codes.pop(form["code"], None)
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
            if about is None or about["code_challenge"] != challenge:
                return JSONResponse({"error": "invalid_grant"}, 400)
        if about is None:
            return JSONResponse({"error": "invalid_grant"}, 400)
        wanted = set(about.get("scope", "").split())
        scopes = " ".join(sorted(wanted if self.granted is None else wanted & self.granted))
        refresh = secrets.token_hex(8)
        self.refreshes[refresh] = about
        token = self.token(aud=form.get("resource"), scope=scopes, client_id=about["client_id"])
        return JSONResponse(
            {
                "access_token": token,
                "token_type": "Bearer",
                "expires_in": self.token_seconds,
                "scope": scopes,
                "refresh_token": refresh,
            }
        )

    async def introspect(self, request: Request) -> Response:
        if self.is_down:
            return Response(status_code=503)
        assert request.headers["authorization"] == "Basic " + base64.b64encode(b"server:secret").decode()
        token = str((await request.form())["token"])
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except jwt.exceptions.PyJWTError:
            return JSONResponse({"active": False})
        return JSONResponse({"active": token not in self.inactive, **claims})

    def application(self) -> Starlette:
        routes = [
            Route("/.well-known/oauth-authorization-server", self.metadata),
            Route("/jwks", self.jwks),
            Route("/register", self.register, methods=["POST"]),
            Route("/authorize", self.authorize),
            Route("/token", self.exchange, methods=["POST"]),
            Route("/introspect", self.introspect, methods=["POST"]),
        ]
        return Starlette(routes=routes)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.asked.append(scope["path"])
        await self._application(scope, receive, send)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["IdentityProvider", None]:
        self._application = self.application()
        async with served(self) as base:
            self.issuer = base
            yield self


async def sign_in(http: httpx2.AsyncClient, url: str) -> tuple[str, str | None]:
    """What a user does in the browser: open the page, be sent back. The code and the state."""
    response = await http.get(url, follow_redirects=False)
    query = httpx2.URL(response.headers["location"]).params
    return query["code"], query.get("state")
