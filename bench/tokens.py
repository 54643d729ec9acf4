"""Access tokens for the benchmark: JWTs of an issuer that the server under test serves itself.

The key follows from a number, so that the benchmark and the server have the same one without a word.
"""

import time
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

__all__ = ["JWKS_PATH", "KEY_SET", "access_token", "issuer"]

JWKS_PATH: Final = "/jwks"
_KEY: Final = ec.derive_private_key(0xBE9C, ec.SECP256R1())
_ALGORITHM: Final = "ES256"
_SECONDS: Final = 3600
KEY_SET: Final[dict[str, Any]] = {
    "keys": [
        {**jwt.algorithms.ECAlgorithm.to_jwk(_KEY.public_key(), as_dict=True), "kid": "1", "alg": _ALGORITHM}
    ]
}


def issuer(port: int) -> str:
    """Who issues the tokens for a server on that port."""
    return f"http://localhost:{port}"


def access_token(port: int) -> str:
    """A token as identity providers issue it, for the server on that port."""
    now = int(time.time())
    claims: dict[str, Any] = {
        "iss": issuer(port),
        "aud": f"{issuer(port)}/mcp",
        "sub": "248289761001",
        "client_id": "s6BhdRkqt3",
        "scope": "read write",
        "iat": now,
        "exp": now + _SECONDS,
        "jti": "dbe39bf3a3ba4238a513f51d6e1691c4",
    }
    return jwt.encode(claims, _KEY, algorithm=_ALGORITHM, headers={"kid": "1", "typ": "at+jwt"})
