"""Addresses of clients: which proxies are believed where they say, with `X-Forwarded-For`, whose request they
pass on, and which addresses one client has.

Anybody can send that header. So it is read from the right, as far as the addresses are those of trusted
proxies; the first other address is the client's.
"""

import functools
import ipaddress
from collections.abc import Iterable
from typing import Final

from ekiden.errors import UsageError
from ekiden.wire.incoming import Incoming

__all__ = ["RELAYED_FOR", "TrustedProxies", "network_of", "networks_of"]

_FORWARDED: Final = b"x-forwarded-for"
RELAYED_FOR: Final = b"x-ekiden-address"
"""Says, between workers of one machine, whose request it is. From anybody else it is not read."""
_MOST_HOPS: Final = 20
"""Entries of the header that are looked at. No request comes through more proxies than that."""
_NETWORK_BITS: Final = 64
"""Of an IPv6 address: one client has all addresses of its network."""
_SITE_BITS: Final = (64, 72, 80)
"""Of an IPv6 address, what is not in the name of its /64, /56 and /48. One site may have any of them."""


@functools.lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """What limits count clients by: an address of IPv4, or a network of IPv6."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped
    return str(mapped) if mapped is not None else str(int(parsed) >> _NETWORK_BITS)


@functools.lru_cache(maxsize=4096)
def networks_of(address: str) -> tuple[str, ...]:
    """The /64, the /56 and the /48 of an address of IPv6; thrice the same of IPv4."""
    smallest = network_of(address)
    try:
        parsed = ipaddress.IPv6Address(address)
    except ValueError:
        return (smallest,) * 3
    return (smallest,) * 3 if parsed.ipv4_mapped else tuple(str(int(parsed) >> bits) for bits in _SITE_BITS)


class TrustedProxies:
    """Addresses and networks, such as `127.0.0.1` or `10.0.0.0/8`.

    `*` trusts whoever connects, and nobody else: of the header then only the last address counts, which that
    proxy has written. What stands before it may be what a client has sent.
    """

    def __init__(self, trusted: Iterable[str]) -> None:
        named = list(trusted)
        self._all = "*" in named
        try:
            self._networks = [ipaddress.ip_network(each, strict=False) for each in named if each != "*"]
        except ValueError as error:
            raise UsageError(f"trusted_proxies are IP addresses and networks: {error}") from None

    def client_of(self, incoming: Incoming) -> str | None:
        """The address of the client, given that of whoever has connected."""
        address = incoming.address
        if not self._all and not self._trusts(address):
            return address
        for claimed in reversed(_claimed(incoming)[-_MOST_HOPS:]):
            try:
                address = str(_parsed(_without_port(claimed)))
            except ValueError:
                return address  # Whoever wrote this is not to be believed beyond it.
            if not self._trusts(address):
                return address
        return address

    def _trusts(self, address: str | None) -> bool:
        try:
            parsed = None if address is None else _parsed(address)
        except ValueError:
            return False
        return parsed is not None and any(parsed in network for network in self._networks)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address; one of IPv4 that is spelled as IPv6 is one of IPv4."""
    parsed = ipaddress.ip_address(address)
    return getattr(parsed, "ipv4_mapped", None) or parsed


def _claimed(incoming: Incoming) -> list[str]:
    pairs = incoming.repeating or incoming.headers.items()
    values = [value for name, value in pairs if name == _FORWARDED]
    return [hop.strip() for hop in b",".join(values).decode("latin-1").split(",") if hop.strip()]


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
