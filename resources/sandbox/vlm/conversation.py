"""One chat request in OpenAI's form, as the messages that the model's own chat template renders.

The template is the one that training uses, so a conversation reads the same to the model on both sides: text
and pictures in the order given, arguments of earlier calls as a mapping, tool definitions as they stand.
Pictures come as `data:` addresses and are scaled by the one function that training scales with.
"""

import base64
import binascii
import io
import json
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from threading import Lock
from typing import Any

from PIL import Image

from env_service.canonical import sha256_hex
from resources.sandbox.vlm.processor import VISION_TOKENS, scaled

ROLES = ("system", "user", "assistant", "tool")
FORMATS = ("JPEG", "PNG")
MAX_PICTURE_PIXELS = 64_000_000
KEPT_PICTURES = 512
MAX_LOGPROBS = 20
MAX_STOPS = 4


class BadRequest(Exception):
    """A request that has no answer, with the status and the code to say so in OpenAI's form."""

    def __init__(
        self, message: str, code: str = "invalid_request", status: HTTPStatus = HTTPStatus.BAD_REQUEST
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


@dataclass(frozen=True)
class Sampling:
    """How a reply is drawn.

    Attributes:
        temperature: 0 takes the likeliest token.
        top_p, top_k: truncation of the distribution; 1 and 0 for none.
        max_tokens: tokens of the reply; None for what the context leaves.
        seed: the noise follows from it, from the conversation and from the model's name.
        stop: texts at which the reply ends; they are not part of it.
        logprobs: alternatives wanted beside each token's log-probability; None for no log-probabilities.
    """

    temperature: float
    top_p: float
    top_k: int
    max_tokens: int | None
    seed: int
    logprobs: int | None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """A request that makes sense.

    Attributes:
        model: the name asked for.
        messages: messages for the chat template; pictures stand in them as PIL images.
        tools: tool definitions as they came.
        pictures: the pictures in order, and `digests` the SHA-256 of the bytes that each came as.
    """

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    pictures: tuple[Image.Image, ...]
    digests: tuple[str, ...]
    sampling: Sampling


class Pictures:
    """Decoded and scaled pictures by the hash of their bytes: a conversation sends all of them every turn."""

    def __init__(self, view_px: int) -> None:
        self._view_px = view_px
        self._kept: OrderedDict[str, Image.Image] = OrderedDict()
        self._lock = Lock()

    def get(self, data: bytes) -> tuple[str, Image.Image]:
        """SHA-256 of the bytes, and the picture as the model sees it.

        Raises:
            BadRequest: the bytes are no JPEG or PNG, or far too large.
        """
        digest = sha256_hex(data)
        with self._lock:
            if digest in self._kept:
                self._kept.move_to_end(digest)
                return digest, self._kept[digest]
        picture = self._decoded(data)
        with self._lock:
            self._kept[digest] = picture
            while len(self._kept) > KEPT_PICTURES:
                self._kept.popitem(last=False)
        return digest, picture

    def _decoded(self, data: bytes) -> Image.Image:
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
                if picture.width * picture.height > MAX_PICTURE_PIXELS:
                    raise BadRequest(f"A picture has {picture.width} × {picture.height} pixels, too many")
                return scaled(picture, self._view_px)
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            raise BadRequest("A picture is no readable JPEG or PNG", "invalid_image") from None


def read_request(body: Mapping[str, Any], pictures: Pictures) -> Asked:
    """Check a request body and take it apart.

    Raises:
        BadRequest: something in it is malformed or is not served here; the message names the field.
    """
    if body.get("stream"):
        raise BadRequest("`stream` is not served here; leave it out", "unsupported")
    if body.get("n") not in (None, 1):
        raise BadRequest("`n` is not served here; ask several times with different seeds", "unsupported")
    thinking = body.get("chat_template_kwargs")
    if thinking not in (None, {}, {"enable_thinking": False}):
        raise BadRequest("`chat_template_kwargs` can only turn thinking off here", "unsupported")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
        raise BadRequest("`messages` must be a list of one message at least", "invalid_messages")
    seen: list[tuple[str, Image.Image]] = []
    converted = [_message(message, number, pictures, seen) for number, message in enumerate(messages)]
    return Asked(
        model=str(body.get("model") or ""),
        messages=converted,
        tools=_tools(body),
        pictures=tuple(picture for _, picture in seen),
        digests=tuple(digest for digest, _ in seen),
        sampling=_sampling(body),
    )


def _message(
    message: Mapping[str, Any], number: int, pictures: Pictures, seen: list[tuple[str, Image.Image]]
) -> dict[str, Any]:
    where, role = f"messages[{number}]", message.get("role")
    if role not in ROLES:
        raise BadRequest(f"{where}.role must be one of {', '.join(ROLES)}", "invalid_messages")
    content = message.get("content")
    if isinstance(content, list):
        parts: Any = [_part(part, f"{where}.content[{i}]", pictures, seen) for i, part in enumerate(content)]
    elif isinstance(content, str):
        parts = _words(content, where)
    elif content is None and role == "assistant":
        parts = ""
    else:
        raise BadRequest(f"{where}.content must be text or a list of parts", "invalid_messages")
    found = {"role": role, "content": parts}
    calls = message.get("tool_calls")
    if role == "assistant" and calls:
        if not isinstance(calls, list):
            raise BadRequest(f"{where}.tool_calls must be a list", "invalid_messages")
        found["tool_calls"] = [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    return found


def _part(part: Any, where: str, pictures: Pictures, seen: list[tuple[str, Image.Image]]) -> dict[str, Any]:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": _words(part["text"], where)}
    if kind == "image_url" and isinstance(part.get("image_url"), dict):
        seen.append(pictures.get(_data_url(part["image_url"].get("url"), where)))
        return {"type": "image", "image": seen[-1][1]}
    raise BadRequest(f"{where} must be a part of type text or image_url", "invalid_messages")


def _words(text: str, where: str) -> str:
    """Text that stands for itself: no half of a character, and no place for a picture."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise BadRequest(f"{where} holds half of a surrogate pair, which is no text", "invalid_messages")
    if reserved := [token for token in VISION_TOKENS if token in text]:
        raise BadRequest(f"{where} holds {reserved[0]}, which stands for a picture", "invalid_messages")
    return text


def _data_url(url: Any, where: str) -> bytes:
    head, comma, body = str(url).partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise BadRequest(f"{where}: pictures must come as data: addresses in base64", "invalid_image")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"{where}: the picture is not valid base64", "invalid_image") from None


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRequest(f"{where} must be a function with a name", "invalid_messages")
    arguments = function.get("arguments") or "{}"
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise BadRequest(f"{where}.function.arguments must be a JSON object as text", "invalid_messages")
    return {"type": "function", "function": {"name": function["name"], "arguments": value}}


def _tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    tools, choice = body.get("tools") or [], body.get("tool_choice") or "auto"
    if not isinstance(tools, list) or not all(
        isinstance(tool, dict) and isinstance(tool.get("function"), dict) for tool in tools
    ):
        raise BadRequest("`tools` must be a list of function definitions", "invalid_tools")
    if choice not in ("auto", "none"):
        raise BadRequest("`tool_choice` is auto or none here; a call cannot be forced", "unsupported")
    return tools if choice == "auto" else []


def _sampling(body: Mapping[str, Any]) -> Sampling:
    tokens = body.get("max_completion_tokens")
    tokens = body.get("max_tokens") if tokens is None else tokens
    seed, top = body.get("seed"), body.get("top_logprobs")
    alternatives = _whole("top_logprobs", 0 if top is None else top, 0, MAX_LOGPROBS)
    return Sampling(
        temperature=_number("temperature", body.get("temperature"), 1.0, 0.0, 2.0),
        top_p=_number("top_p", body.get("top_p"), 1.0, 1e-6, 1.0),
        # vLLM's own name for "all of them" is 0 or -1.
        top_k=max(0, _whole("top_k", body.get("top_k") or 0, -1, 1 << 31)),
        max_tokens=None if tokens is None else _whole("max_tokens", tokens, 1, 1 << 31),
        seed=secrets.randbits(62) if seed is None else _whole("seed", seed, -(1 << 63), (1 << 63) - 1),
        logprobs=alternatives if body.get("logprobs") else None,
        stop=_stop(body.get("stop")),
    )


def _stop(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or len(texts) > MAX_STOPS:
        raise BadRequest(f"`stop` must be a text or a list of {MAX_STOPS} at most", "invalid_sampling")
    if not all(isinstance(text, str) and text for text in texts):
        raise BadRequest("`stop` holds something that is no text, or an empty one", "invalid_sampling")
    return tuple(texts)


def _number(name: str, value: Any, default: float, low: float, high: float) -> float:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadRequest(f"`{name}` must be a number from {low:g} to {high:g}", "invalid_sampling")
    return float(value)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadRequest(f"`{name}` must be a whole number from {low} to {high}", "invalid_sampling")
    return value
