"""JSON-RPC as far as `/mcp` must know it: what is a request, and how a refusal is written.

FastMCP is given requests alone. It answers other messages with pages of what its parser tried, and one that
poses as an answer to a question nobody asked ends in a traceback in the log, with all that was sent.
"""

import json
from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603
REFUSED = -32000
SESSION_NOT_FOUND = -32001


def fault(message: dict[str, Any]) -> str | None:
    """Why a message is neither request nor notification, in words that do not repeat it; else None."""
    if message.get("jsonrpc") != "2.0":
        return 'a message has "jsonrpc": "2.0"'
    if "result" in message or "error" in message:
        return "this server asks nothing of its clients, so it takes no answers"
    if not isinstance(message.get("method"), str):
        return "a request has a method, which is a string"
    if "id" in message and known_id(message["id"]) is None:
        return "the id of a request is a string or a whole number"
    if not isinstance(message.get("params"), dict | None):
        return "the params of a request are an object"
    return None


def is_notification(message: dict[str, Any]) -> bool:
    """Whether a message without fault wants no answer. None changes anything here: nothing is pushed, and a
    call once made is played."""
    return "id" not in message


def known_id(value: object) -> str | int | None:
    """An id as JSON-RPC has it, or None."""
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def error_text(code: int, words: str, rpc_id: object = None) -> str:
    """An error as JSON; an id that is none is left out."""
    error = {"code": code, "message": words}
    return json.dumps({"jsonrpc": "2.0", "id": known_id(rpc_id), "error": error})
