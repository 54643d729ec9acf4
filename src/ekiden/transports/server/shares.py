"""Who a client is, where a process has only so many places, or bytes, for all of its clients."""

from ekiden.transports.server.proxies import network_of
from ekiden.transports.shares import Shares
from ekiden.wire.incoming import Incoming

__all__ = ["Shares", "client_of", "named_by"]


def client_of(incoming: Incoming) -> str:
    """Who sends a request, as far as clients are told apart here: by identity, else by address."""
    if incoming.principal is not None:
        return incoming.principal.id
    return named_by(incoming.address)


def named_by(address: str | None) -> str:
    """What a client is called by its address; empty if that is not known."""
    return "" if address is None else network_of(address)
