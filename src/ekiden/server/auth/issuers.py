"""What an authorization server says about itself (RFC 8414, OpenID Connect Discovery)."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from ekiden.server.auth.fetching import Fetcher, check_url
from ekiden.signals import VerifierUnavailable
from ekiden.wire.json import JsonObject

__all__ = ["discover", "well_known"]


async def discover(issuer: str, fetcher: Fetcher) -> JsonObject:
    """The metadata of an issuer. Metadata that names another issuer is not used."""
    problems: list[str] = []
    for url in well_known(issuer):
        try:
            found = await fetcher.get(url)
        except VerifierUnavailable as problem:
            problems.append(str(problem))
            continue
        if found.get("issuer") == issuer:
            return found
        problems.append(f"{url} is about issuer {found.get('issuer')!r}")
    raise VerifierUnavailable(f"no metadata of {issuer}: {'; '.join(problems)}")


def well_known(issuer: str) -> Iterator[str]:
    """Where the metadata of an issuer can be, in the order to look."""
    parts = urlsplit(check_url(issuer, "issuer"))
    base, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    yield f"{base}/.well-known/oauth-authorization-server{path}"
    yield f"{base}/.well-known/openid-configuration{path}"
    if path:
        yield f"{base}{path}/.well-known/openid-configuration"
