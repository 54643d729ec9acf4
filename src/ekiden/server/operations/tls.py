"""Certificates for HTTPS: checked before anything listens, so that what is wrong is said in a sentence."""

import ssl

from ekiden.errors import UsageError

__all__ = ["check_certificate"]


def check_certificate(cert: str | None, key: str | None) -> None:
    """Raise `UsageError` if a server cannot be started with this certificate and key."""
    if cert is None:
        raise UsageError("a TLS key needs its certificate: give both")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=_refuse)
    except OSError as error:  # Also what is wrong inside the files: `ssl.SSLError` is an `OSError`.
        named = cert if key is None else f"{cert} and {key}"
        raise UsageError(f"the TLS certificate cannot be used ({named}): {error.strerror or error}") from None


def _refuse() -> str:
    """Called for a key that is encrypted. Nobody is there to type a password when a worker is replaced."""
    raise UsageError("the TLS key is encrypted: give one without a password, readable by this user only")
