"""Signed picture links that expire, in the manner of the delivery network behind Mapillary.

`oe` is the expiry as hexadecimal Unix seconds, `oh` a signature over path and expiry. The key lives as long
as the process: a link kept from an earlier run is as dead as one kept too long.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

SIGNATURE_CHARS = 32


class LinkSigner:
    """Makes and checks links.

    Args:
        life_s: seconds a link is honoured.
        clock: seconds since 1970; replaced by tests.
    """

    def __init__(self, life_s: float, clock: Callable[[], float] = time.time) -> None:
        self._life_s, self._clock = life_s, clock
        self._key = secrets.token_bytes(32)

    def query(self, path: str) -> str:
        """The query that makes `path` a valid link from now on."""
        expiry = f"{int(self._clock() + self._life_s):x}"
        return f"oe={expiry}&oh={self._sign(path, expiry)}"

    def refusal(self, path: str, expiry: str, signature: str) -> str | None:
        """Why a link is refused, as the delivery network words it; None for a valid one."""
        if not hmac.compare_digest(signature.encode(), self._sign(path, expiry).encode()):
            return "Bad URL hash"
        return "URL signature expired" if int(expiry, 16) < self._clock() else None

    def _sign(self, path: str, expiry: str) -> str:
        return hmac.new(self._key, f"{path}?oe={expiry}".encode(), hashlib.sha256).hexdigest()[
            :SIGNATURE_CHARS
        ]
