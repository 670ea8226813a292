"""Names of hosts: what a Host header or an origin says, and which of them are this server's."""

import ipaddress
import re
from collections.abc import Collection

HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9_.-]+))(?::[0-9]{1,5})?")
LOOPBACK = "localhost"
ANY = "*"


def name_of(host: str) -> str:
    """The name or address in `name:port`; empty if it is neither."""
    found = HOST.fullmatch(host.lower())
    return "" if found is None else found["six"] or found["name"]


def is_own(host: str, names: Collection[str]) -> bool:
    """One of these names, or an address: only names can be bent to another machine's address."""
    name = name_of(host)
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return name in names or (ANY in names and name != "")


def is_own_origin(origin: str, host: str, public_url: str | None) -> bool:
    """Whether a page of this origin is ours: it is that of the request's own host, or the public address.

    Where the public address is https, a page of its name by plain http may be anybody's.
    """
    scheme, _, place = origin.lower().partition("://")
    if public_url is not None:
        public_scheme, _, public_place = public_url.partition("://")
        if (scheme, place) == (public_scheme, public_place):
            return True
        if public_scheme == "https" and scheme == "http" and name_of(place) == name_of(public_place):
            return False
    return bool(place) and place == host.lower()
