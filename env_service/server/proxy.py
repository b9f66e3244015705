"""Who a client is, and whether an operator has named a proxy whose word on that counts.

Who a client is decides which episode it finds (see `mcp`), so nothing that a request says of its origin is
believed otherwise. The web server reads the same variable: addresses and networks, with commas between them.
"""

import ipaddress
import logging
import os
from functools import lru_cache

from starlette.types import Scope

log = logging.getLogger(__name__)

PROXY_VARIABLE = "FORWARDED_ALLOW_IPS"


def behind_proxy() -> bool:
    """Whether the variable names anything."""
    return bool(os.environ.get(PROXY_VARIABLE))


def client_of(scope: Scope) -> str:
    """Who a connection comes from: its address, of IPv6 the first 64 bits, which one customer is given whole.

    Behind a proxy that is the proxy, and all its visitors are one client, unless the operator names it in
    FORWARDED_ALLOW_IPS. Then uvicorn takes the last address in the proxy's report that is no proxy's, which a
    visitor cannot choose if the proxy adds to the report or replaces it.
    """
    if not behind_proxy() and any(name == b"x-forwarded-for" for name, _ in scope["headers"]):
        _warn_of_proxy()
    host = (scope.get("client") or ("",))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return str(host)
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped or ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)


@lru_cache(maxsize=1)
def _warn_of_proxy() -> None:
    """Once: anybody can write that header."""
    log.warning(
        "a request came through a proxy that %s does not name, so all its visitors count as one client; "
        "set it to the proxy's address",
        PROXY_VARIABLE,
    )
