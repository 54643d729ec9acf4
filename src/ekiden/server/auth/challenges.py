"""What clients are told that may not ask: statuses, `WWW-Authenticate` (RFC 6750, RFC 9728), and few words.

The words are always the same: why a token is not valid is in the log, and not for whoever sent it.
"""

from collections.abc import Iterable, Sequence

from ekiden.errors import InsufficientScope
from ekiden.server.auth.dpop import PROOF_ALGORITHMS
from ekiden.wire.incoming import Refusal
from ekiden.wire.principal import is_scope

__all__ = ["Challenges"]


class Challenges:
    """The refusals of one resource. `scopes` are those that every request needs."""

    def __init__(self, metadata_url: str | None, scopes: Sequence[str], *, scheme: str) -> None:
        self._metadata_url = metadata_url
        self._scopes = list(scopes)
        self._scheme = scheme
        self.missing = self._refusal(401, "Unauthorized: an access token is required")
        """There is no token."""
        self.invalid = self._refusal(
            401, "Unauthorized: the access token is not valid or has expired", "invalid_token"
        )
        self.unproven = self._refusal(
            401, "Unauthorized: the DPoP proof is not valid", "invalid_dpop_proof", "DPoP"
        )
        self.malformed = self._refusal(
            400, "Bad request: one access token is sent, in the Authorization header", "invalid_request"
        )
        self.too_little = Refusal(403, "Forbidden: the access token grants too little", self._few(()))
        """A scope is missing that every request needs."""
        self.unavailable = Refusal(
            503, "The access token cannot be verified right now: try again later", ((b"retry-after", b"5"),)
        )

    def insufficient(self, scopes: Iterable[str]) -> InsufficientScope:
        """What is needed and was not granted; the challenge names all that the request needs.

        Words that cannot be scopes are left out of it: a tool may have made them of what a client sent.
        """
        wanted = sorted(scopes)
        ((_, value),) = self._few([word for word in " ".join(wanted).split(" ") if is_scope(word)])
        return InsufficientScope(wanted, headers={"WWW-Authenticate": value.decode()})

    def _few(self, scopes: Sequence[str]) -> tuple[tuple[bytes, bytes]]:
        return (self._header(self._scheme, "insufficient_scope", [*self._scopes, *scopes]),)

    def _refusal(self, status: int, words: str, error: str | None = None, scheme: str = "") -> Refusal:
        header = self._header(scheme or self._scheme, error, self._scopes)
        return Refusal(status, words, (header, (b"cache-control", b"no-store")))

    def _header(self, scheme: str, error: str | None, scopes: Sequence[str]) -> tuple[bytes, bytes]:
        fields: list[str] = []
        if error is not None:
            fields.append(f'error="{error}"')
        if scopes:
            fields.append(f'scope="{" ".join(dict.fromkeys(scopes))}"')
        if self._metadata_url is not None:
            fields.append(f'resource_metadata="{self._metadata_url}"')
        if scheme == "DPoP":
            fields.append(f'algs="{" ".join(PROOF_ALGORITHMS)}"')
        return b"www-authenticate", f"{scheme} {', '.join(fields)}".strip().encode()
