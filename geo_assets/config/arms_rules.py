"""What an arm may not be called, and where it may not be asked: said when it is declared, not when it is run.

An address with a user or a password in it is refused before anything is written, and never repeated in a
message: what `arms.yaml` holds is committed, and hashed into every episode.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

RESERVED = {
    "adapter_": "adapters are swept under that name by themselves: it would be two assets of one name",
    "sweep_": "its asset is called sweep_SLUG already: leave the prefix out",
}
"""Beginnings of slugs that belong to other assets."""


def arm_fault(fields: Mapping[str, Any]) -> tuple[str, str]:
    """The field of an arm that cannot stand and why, without the value of an address; both empty if none."""
    slug, url = str(fields.get("slug", "")), fields.get("base_url") or ""
    for prefix, why in RESERVED.items():
        if slug.startswith(prefix):
            return "slug", f"slug {slug!r} cannot begin with {prefix} ({why})"
    if not url and fields.get("provider") == "openai_compatible":
        return "provider", "provider openai_compatible has no address of its own and needs a base_url"
    fault = _address_fault(url) if isinstance(url, str) and url else ""
    return ("base_url", f"base_url {fault}") if fault else ("", "")


def _address_fault(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is no address"
    # Looked for in the whole text, too: what urlsplit takes for a path may be a password to others.
    if parts.username is not None or parts.password is not None or "@" in url:
        return "holds a user or a password: keys are read from the environment (GEO_ENDPOINT_KEY)"
    if parts.scheme not in ("http", "https") or not host:
        return "is no http or https address, such as http://127.0.0.1:8001/v1"
    if parts.query or parts.fragment or any(c.isspace() or not c.isprintable() for c in url):
        return "holds more than an address that ends before /chat/completions"
    return ""
