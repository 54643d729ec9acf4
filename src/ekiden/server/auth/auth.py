"""`Auth`: who may send requests to a server over HTTP, and what is told to those who may not."""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec

from ekiden.errors import InsufficientScope, UsageError
from ekiden.server.auth.challenges import Challenges
from ekiden.server.auth.dpop import Proofs
from ekiden.server.auth.fetching import Fetcher, check_url
from ekiden.server.auth.jwt import JWTVerifier
from ekiden.server.auth.known import Known, KnownTokens, Watch, digest_of
from ekiden.server.auth.metadata import Metadata
from ekiden.server.auth.static import StaticTokens
from ekiden.server.auth.token import TokenVerifier, audiences_of, binding_problem, key_of, principal_of
from ekiden.server.auth.verifying import Verifications
from ekiden.signals import VerifierUnavailable
from ekiden.wire.incoming import Incoming, Refusal, Watching
from ekiden.wire.principal import Principal, is_scope
from ekiden.wire.printable import printable

__all__ = ["Auth", "check_scopes"]

_log = logging.getLogger(__name__)

_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]{1,16384}=*")
_NOTHING: Final[frozenset[str]] = frozenset()
_CACHE_SECONDS: Final = 300.0
"""How long a verified token is not verified again: so long a key counts that its issuer has withdrawn."""

DpopMode: TypeAlias = Literal["accepted", "required"]


class Auth:
    """Makes a server an OAuth 2.1 resource server: `Server(auth=Auth("https://mcp.example/mcp", ...))`.

    `resource` is the URL by which clients know the endpoint; tokens must have been issued for it, or for one
    of `audience`. `issuer` are the authorization servers, and by default tokens are JWTs of theirs.
    `verifier` is another way to verify tokens: one of ekiden's, any object with the official SDK's
    `verify_token`, or several of them, which are asked in turn. `audience=None` leaves it to the verifier to
    check for whom a token was issued; a `JWTVerifier` does so if it has an `audience=`.

    `scopes` are needed by every request. `implies` says which scopes a broader one includes:
    `{"admin": ["read", "write"]}`. `scopes_supported` is what the metadata names, by default `scopes`.
    `dpop="required"` refuses tokens that are not bound to a key. `local` is who calls over stdio and in
    memory, where there are no tokens.
    """

    def __init__(
        self,
        resource: str,
        *,
        issuer: str | Sequence[str] | None = None,
        verifier: TokenVerifier | Sequence[TokenVerifier] | None = None,
        audience: str | Sequence[str] | None = (),
        scopes: Sequence[str] = (),
        scopes_supported: Sequence[str] | None = None,
        implies: Mapping[str, Iterable[str]] | None = None,
        dpop: DpopMode = "accepted",
        local: Principal | None = None,
        name: str | None = None,
        documentation: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.resource = check_url(resource, "resource")
        self.local = local
        self._verifiers = _verifiers(issuer, verifier)
        self._audience = None if audience is None else {_comparable(each) for each in _listed(audience)}
        if self._audience is not None:
            self._audience.add(_comparable(resource))
        elif any(getattr(each, "checks_audience", True) is False for each in self._verifiers):
            raise UsageError(
                "Auth(audience=None) needs verifiers that check for whom a token was issued: give the "
                "JWTVerifier an audience=, or tokens that its issuer made for others would be accepted"
            )
        self.scopes = check_scopes(scopes)
        self._implied = _implied(implies or {})
        self._needs_dpop = dpop == "required"
        issuers = _issuers(issuer, self._verifiers)
        self.metadata: Metadata | None = None
        """The server's metadata; None if no authorization server issues its tokens."""
        if issuers:
            supported = check_scopes(self.scopes if scopes_supported is None else scopes_supported)
            self.metadata = Metadata(
                resource,
                issuers,
                supported,
                name=name,
                documentation=documentation,
                needs_dpop=self._needs_dpop,
            )
        url = None if self.metadata is None else self.metadata.url
        self._challenges = Challenges(url, self.scopes, scheme="DPoP" if self._needs_dpop else "Bearer")
        self._proofs = Proofs(resource)
        self._known = KnownTokens()
        self._verifications = Verifications(self._verify)
        self._clock = clock

    def insufficient(self, scopes: Iterable[str]) -> InsufficientScope:
        """The error for a caller who lacks scopes; `scopes` are all that are needed."""
        return self._challenges.insufficient(scopes)

    async def close(self) -> None:
        """Close the connections to authorization servers."""
        for verifier in self._verifiers:
            fetcher = getattr(verifier, "fetcher", None)
            if isinstance(verifier, JWTVerifier):
                await verifier.close()
            elif isinstance(fetcher, Fetcher):
                await fetcher.close()

    # At the gate

    def admit(self, incoming: Incoming) -> Refusal | Coroutine[Any, Any, Refusal | None] | None:
        """Implements `ekiden.transports.server.gate.Doorkeeper`."""
        header = incoming.headers.get(b"authorization")
        if _is_ambiguous(incoming):
            return self._challenges.malformed
        if header is None:
            return self._challenges.missing
        scheme, _, token = header.strip(b" \t").partition(b" ")
        token = token.lstrip(b" ")
        scheme = scheme.lower()
        if scheme not in (b"bearer", b"dpop"):
            return self._challenges.missing
        if not _TOKEN.fullmatch(token):
            return self._challenges.invalid
        digest, now = digest_of(token), self._clock()
        known = self._known.get(digest, now)
        if known is None:
            return self._look_up(incoming, scheme, token, digest)
        return self._judge(incoming, scheme, token, known, now)

    async def _look_up(
        self, incoming: Incoming, scheme: bytes, token: bytes, digest: bytes
    ) -> Refusal | None:
        """Verify a token, together with all who have sent it meanwhile."""
        is_certain, known = self._verify_at_once(token, digest)
        if is_certain:
            return self._judge_found(incoming, scheme, token, known)
        was_valid = self._known.was_valid(digest, self._clock())
        running = self._verifications.begin(token, digest, incoming.address, is_sure_to_be_real=was_valid)
        if running is None:
            return self._challenges.unavailable
        try:
            known = await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.cancelled():
                raise
            return self._challenges.unavailable  # Others needed its place.
        except VerifierUnavailable as problem:
            _log.error("Access tokens cannot be verified: %s", problem)
            return self._challenges.unavailable
        except Exception:
            _log.exception("A verifier of access tokens raised")
            return self._challenges.unavailable
        return self._judge_found(incoming, scheme, token, known)

    def _judge_found(
        self, incoming: Incoming, scheme: bytes, token: bytes, known: Known | None
    ) -> Refusal | None:
        if known is None:
            return self._challenges.invalid
        return self._judge(incoming, scheme, token, known, self._clock())

    def _verify_at_once(self, token: bytes, digest: bytes) -> tuple[bool, Known | None]:
        """Whether verifiers can be certain about a token without asking anybody, and what they say then."""
        for verifier in self._verifiers:
            if not isinstance(verifier, JWTVerifier) or not _is_unchanged(verifier):
                return False, None
            try:
                is_certain, found = verifier.verify_at_once(token.decode("ascii"))
            except Exception:
                return False, None  # It is raised again where somebody logs it.
            if not is_certain:
                return False, None
            if found is not None:
                return True, self._remember(verifier, found, digest)
        return True, None

    async def _verify(self, token: bytes, digest: bytes) -> Known | None:
        unavailable: VerifierUnavailable | None = None
        for verifier in self._verifiers:
            try:
                found = await verifier.verify_token(token.decode("ascii"))
            except VerifierUnavailable as problem:
                unavailable = problem
                continue
            if found is not None:
                return self._remember(verifier, found, digest)
        if unavailable is not None:
            raise unavailable
        self._known.forget(digest)
        return None

    def _remember(self, verifier: TokenVerifier, found: Any, digest: bytes) -> Known | None:
        if not self._is_for_us(verifier, found):
            return None
        if (problem := binding_problem(found)) is not None:
            _log.info("An access token was refused: %s", problem)
            return None
        principal = principal_of(found)
        if principal is None:
            return None
        if self._implied:
            granted = set(principal.scopes)
            for scope in principal.scopes:
                granted |= self._implied.get(scope, _NOTHING)
            principal = msgspec.structs.replace(principal, scopes=frozenset(granted))
        now, expires = self._clock(), getattr(found, "expires_at", None)
        kept = min(_CACHE_SECONDS, getattr(verifier, "cache_seconds", _CACHE_SECONDS))
        lasts = _is_unchanged(verifier) or getattr(verifier, "holds_until_expiry", False) is True
        until = math.inf if expires is None else float(expires)
        known = Known(principal, until, now + kept, key_of(found), lasts, self._watch)
        if now < known.expires:
            self._known.put(digest, known, now)
        return known

    def _is_for_us(self, verifier: TokenVerifier, found: Any) -> bool:
        if self._audience is None or getattr(verifier, "checks_audience", False):
            return True
        named = audiences_of(found)
        if any(_comparable(each) in self._audience for each in named):
            return True
        _log.info(
            "An access token was refused: it is for %s, not for %s. If the verifier checks that itself: "
            "Auth(audience=None)",
            printable(", ".join(named)) or "nobody in particular",
            self.resource,
        )
        return False

    def _judge(
        self, incoming: Incoming, scheme: bytes, token: bytes, known: Known, now: float
    ) -> Refusal | None:
        """Whether a request with a token that was verified is admitted."""
        if now >= known.expires:
            return self._challenges.invalid
        if known.key is not None or scheme == b"dpop" or self._needs_dpop:
            proof = incoming.headers.get(b"dpop")
            if known.key is None or scheme != b"dpop" or proof is None:
                _log.info(
                    "An access token was refused: DPoP needs a bound token, the scheme DPoP and a proof"
                )
                return self._challenges.invalid if proof is None else self._challenges.unproven
            owner, method = known.principal.id, incoming.method
            problem = self._proofs.problem(proof, token.decode("ascii"), known.key, method, now, owner=owner)
            if problem is not None:
                _log.info("A DPoP proof was refused: %s", problem)
                return self._challenges.unproven
        if not known.principal.scopes.issuperset(self.scopes):
            return self._challenges.too_little
        incoming.principal, incoming.authority = known.principal, known
        return None

    # Streams

    def _watch(self, known: Known, incoming: Incoming, end: Callable[[], None]) -> Watching:
        """Watch the token of a stream. Implements `ekiden.server.auth.known.Watcher`."""
        token = incoming.headers[b"authorization"].strip(b" \t").partition(b" ")[2].lstrip(b" ")
        address = incoming.address
        return Watch(known, lambda: self._verify_again(token, address), self._clock, end)

    async def _verify_again(self, token: bytes, address: str | None) -> Known | None:
        """What the verifiers say now about a token that was valid."""
        digest = digest_of(token)
        known = self._known.get(digest, self._clock())  # A call has asked meanwhile.
        if known is not None:
            return known
        running = self._verifications.begin(token, digest, address, is_sure_to_be_real=True)
        assert running is not None
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.cancelled():
                raise
            raise VerifierUnavailable("too many tokens are being verified") from None


def _is_unchanged(verifier: TokenVerifier) -> bool:
    """Whether what a verifier says cannot change before the token expires: no subclass adds anything."""
    function = getattr(verifier.verify_token, "__func__", None)
    return function in (JWTVerifier.verify_token, StaticTokens.verify_token)


def _is_ambiguous(incoming: Incoming) -> bool:
    """Whether more than one token is sent, or one in the query, where logs and histories keep it."""
    if incoming.repeating is not None:
        names = [name for name, _ in incoming.repeating]
        if names.count(b"authorization") > 1 or names.count(b"dpop") > 1:
            return True
    if b"access_token" not in incoming.query and b"%" not in incoming.query:
        return False
    try:
        query = parse_qsl(incoming.query.decode("latin-1"), keep_blank_values=True, max_num_fields=1000)
    except ValueError:  # Nobody has so many parameters, and one of them could be a token.
        return True
    return any(name == "access_token" for name, _ in query)


def check_scopes(scopes: Sequence[str]) -> list[str]:
    """The scopes as a list, each once; a `UsageError` if one of them cannot be a scope."""
    if isinstance(scopes, str):
        raise UsageError(f"scopes= is a list: write [{scopes!r}]")
    for scope in scopes:
        if not is_scope(scope):
            raise UsageError(f"{scope!r} is not a scope: no spaces, quotes or backslashes")
    return list(dict.fromkeys(scopes))


def _listed(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _verifiers(
    issuer: str | Sequence[str] | None, verifier: TokenVerifier | Sequence[TokenVerifier] | None
) -> list[TokenVerifier]:
    if verifier is None:
        if not issuer:
            raise UsageError("Auth needs issuer= (the authorization server) or verifier=")
        return [JWTVerifier(each) for each in _listed(issuer)]
    found = list(verifier) if isinstance(verifier, Sequence) else [verifier]
    for each in found:
        if not callable(getattr(each, "verify_token", None)):
            raise UsageError(f"{each!r} cannot verify tokens: it has no `async def verify_token(token)`")
    return found


def _issuers(issuer: str | Sequence[str] | None, verifiers: Sequence[TokenVerifier]) -> list[str]:
    if issuer is not None:
        return [check_url(each, "issuer") for each in _listed(issuer)]
    own: list[Any] = [getattr(verifier, "issuer", None) for verifier in verifiers]
    return [each for each in own if isinstance(each, str)]


def _implied(implies: Mapping[str, Iterable[str]]) -> dict[str, frozenset[str]]:
    """For each scope all that it includes, also through others."""
    direct = {scope: set(check_scopes(list(included))) for scope, included in implies.items()}
    found: dict[str, frozenset[str]] = {}
    for scope in direct:
        seen: set[str] = set()
        unvisited = [scope]
        while unvisited:
            for each in direct.get(unvisited.pop(), set()) - seen:
                seen.add(each)
                unvisited.append(each)
        found[scope] = frozenset(seen)
    return found


def _comparable(resource: str) -> str:
    """A resource as it is compared: scheme and host in lower case, without a slash at the end."""
    try:
        parts = urlsplit(resource)
    except ValueError:  # A token may name anything as its audience.
        return resource
    if not parts.scheme or not parts.netloc:
        return resource
    return parts._replace(scheme=parts.scheme.lower(), netloc=parts.netloc.lower()).geturl().rstrip("/")
