"""Refuses every connection that leaves this machine; Python runs it at start in each child of the tests."""

import ipaddress
import sys
from typing import Any

LOCAL_NAMES = {"localhost", "localhost.localdomain", "ip6-localhost", "", None}


def _local(host: Any) -> bool:
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    if host in LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(str(host).split("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def refuse_outside(event: str, args: tuple[Any, ...]) -> None:
    """Audit hook: raises when a socket is about to reach, or a name to be resolved, outside loopback."""
    if event in {"socket.connect", "socket.sendto"}:
        address = args[1]
        # A path or bytes is a UNIX socket, which stays on the machine.
        if isinstance(address, tuple) and not _local(address[0]):
            raise ConnectionRefusedError(f"tests reach loopback only, not {address[0]!r}")
    elif event == "socket.getaddrinfo" and not _local(args[0]):
        raise ConnectionRefusedError(f"tests reach loopback only, not {args[0]!r}")


sys.addaudithook(refuse_outside)
