"""The proxies in front of a server: the addresses that `--from` names."""

import ipaddress
from collections.abc import Sequence

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """Addresses and networks of proxies; `address in proxies` says whether a request comes from one."""

    def __init__(self, networks: Sequence[str] = ()) -> None:
        self._networks = [ipaddress.ip_network(network, strict=False) for network in networks]

    def __contains__(self, address: str) -> bool:
        if not self._networks:
            return False
        found = read_address(address)
        return found is not None and any(found in network for network in self._networks)


def read_address(text: str) -> IPAddress | None:
    """An address, as IPv4 also where IPv6 carries it; None for any other text."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found
