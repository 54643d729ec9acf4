"""The official SDK's OAuth providers, plugged in as `auth=`: discovery, a token, and a new one."""

from typing import Any

from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from ekiden import Client, Context, Server
from tests.serving import served

from .test_rounds import agree


class Memory:
    """Token storage for as long as a test lives."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        raise AssertionError("a client with credentials is not registered")


class Guarded:
    """An authorization server and, behind it, a server that takes only its newest token."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.issued = 0
        self.app = Starlette(
            routes=[
                Route("/.well-known/oauth-protected-resource/mcp", self._resource),
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/token", self._token, methods=["POST"]),
                Mount("/", self._guard),
            ]
        )

    async def _resource(self, request: Request) -> Response:
        base = str(request.base_url).rstrip("/")
        return JSONResponse({"resource": f"{base}/mcp", "authorization_servers": [base]})

    async def _metadata(self, request: Request) -> Response:
        base = str(request.base_url).rstrip("/")
        return JSONResponse(
            {
                "issuer": base,
                "authorization_endpoint": f"{base}/authorize",
                "token_endpoint": f"{base}/token",
                "response_types_supported": ["code"],
                "grant_types_supported": ["client_credentials"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            }
        )

    async def _token(self, request: Request) -> Response:
        assert request.headers["authorization"].startswith("Basic ")
        self.issued += 1
        return JSONResponse(
            {"access_token": f"token-{self.issued}", "token_type": "Bearer", "expires_in": 3600}
        )

    async def _guard(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope)
        if request.headers.get("authorization") == f"Bearer token-{self.issued}":
            return await self._app(scope, receive, send)
        where = f"{str(request.base_url).rstrip('/')}/.well-known/oauth-protected-resource/mcp"
        challenge = {"www-authenticate": f'Bearer resource_metadata="{where}"'}
        return await Response(status_code=401, headers=challenge)(scope, receive, send)


async def test_a_call_of_two_rounds_is_authorized_and_authorized_anew() -> None:
    server = Server("s", keys=[b"a key of at least thirty-two bytes!"])

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask."""
        answer = await ctx.elicit("Who?", str)
        guarded.issued += revoke
        return str(answer.data)

    revoke = 1
    guarded = Guarded(server.asgi())
    async with served(guarded.app) as base:
        url, storage = f"{base}/mcp", Memory()
        auth = ClientCredentialsOAuthProvider(url, storage, "me", "secret", issuer=base)
        async with Client(url, elicit=agree, auth=auth) as client:
            for _ in range(2):
                result = await client.call_tool("ask")
                assert getattr(result.content[0], "text", None) == "Who?"
    assert storage.tokens is not None
    assert storage.tokens.access_token == "token-3", "the first token was revoked by the first call"
