"""What an arm may not be called, and where it may not be asked: said when it is declared, not when it is run.

An address with a user or a password in it is refused before anything is written, and never repeated in a
message: what `arms.yaml` holds is committed, and hashed into every episode.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from geo_assets.config.parsers import family_parsers

RESERVED = {
    "adapter_": "adapters are swept under that name by themselves: it would be two assets of one name",
    "sweep_": "its asset is called sweep_SLUG already: leave the prefix out",
}
"""Beginnings of slugs that belong to other assets."""
SERVING = ("revision", "tool_parser", "reasoning_parser")
"""What only a job of ours can be told."""


def arm_fault(fields: Mapping[str, Any]) -> tuple[str, str]:
    """The field of an arm that cannot stand and why, without the value of an address; both empty if none."""
    slug, url = str(fields.get("slug", "")), fields.get("base_url") or ""
    for prefix, why in RESERVED.items():
        if slug.startswith(prefix):
            return "slug", f"slug {slug!r} cannot begin with {prefix} ({why})"
    if _thinks_with_tools(fields):
        return "sampling", "thinking is not carried from turn to turn under protocol tools; use json for it"
    if not url and fields.get("provider") == "openai_compatible":
        return "provider", "provider openai_compatible has no address of its own and needs a base_url"
    if unserved := _serving_fault(fields, bool(url)):
        return unserved
    fault = _address_fault(url) if isinstance(url, str) and url else ""
    return ("base_url", f"base_url {fault}") if fault else ("", "")


def _serving_fault(fields: Mapping[str, Any], elsewhere: bool) -> tuple[str, str] | None:
    """What is wrong about how a job is to serve the model, or None."""
    provider, model = fields.get("provider"), str(fields.get("model", ""))
    if provider != "self_hosted" or elsewhere:
        said = next((name for name in SERVING if fields.get(name) is not None), "")
        why = "is for a model that a job of ours serves (provider self_hosted without a base_url)"
        return (said, f"{said} {why}") if said else None
    if fields.get("protocol") == "tools" and not fields.get("tool_parser") and family_parsers(model) is None:
        why = f"nobody said what reads the calls of {model!r}: name its tool_parser, as vllm serve lists them"
        return "model", why
    return None


def _thinks_with_tools(fields: Mapping[str, Any]) -> bool:
    """Whether thoughts are asked for that the next request would have to hold, and does not."""
    sampling = fields.get("sampling")
    extra = sampling.get("extra") if isinstance(sampling, Mapping) else None
    thinking = extra.get("thinking") if isinstance(extra, Mapping) else None
    off = thinking is None or (isinstance(thinking, Mapping) and thinking.get("type") == "disabled")
    return fields.get("provider") == "anthropic" and fields.get("protocol") == "tools" and not off


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
