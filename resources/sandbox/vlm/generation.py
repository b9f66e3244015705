"""Replies of one tiny base model and its LoRA adapters, several conversations at a time.

Sampling is made so that company does not matter: every row of a batch draws its own Gumbel noise from a
generator seeded by the request's seed, the conversation with the bytes of its pictures, and the model's name,
and the largest perturbed logit wins, which is exactly a draw from the softmax (Gumbel-max). What stands
beside a row in a batch moves its logits by rounding only (about 1e-6).
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from jinja2.exceptions import TemplateError
from peft import PeftModel
from safetensors import SafetensorError, safe_open
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from trl.chat_template_utils import add_response_schema, parse_response

from env_service.canonical import canonical_json, sha256_hex
from env_service.errors import GeoError
from resources.sandbox.vlm.conversation import Asked, BadRequest, Pictures, Sampling
from resources.sandbox.vlm.processor import load_model, load_processor, view_px, vision_token_ids

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
PEFT_PREFIX = "base_model.model."


class ServedWrongly(Exception):
    """A rendered conversation whose pictures do not fit its placeholders: the model would see none."""


class UnfitAdapter(GeoError):
    """An adapter that cannot be served on this base; the message says why."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A conversation as tensors.

    Attributes:
        asked: the request.
        inputs: what the processor made of it, a batch of one.
        length: its tokens.
        max_tokens: of the reply.
        key: SHA-256 of seed, conversation, pictures and model; noise and ids follow from it.
    """

    asked: Asked
    inputs: Mapping[str, Any]
    length: int
    max_tokens: int
    key: str


@dataclass(frozen=True)
class Said:
    """A reply.

    Attributes:
        message: content, and reasoning_content and tool_calls where there are any, in OpenAI's form.
        finish_reason: tool_calls, stop or length.
        tokens: of the reply, the end token included.
        logprobs: in OpenAI's form; None where they were not asked for.
    """

    message: dict[str, Any]
    finish_reason: str
    tokens: int
    logprobs: dict[str, Any] | None


class TinyModels:
    """One base model and adapters on it, by name.

    Args:
        name, folder: the base.
        adapters: folder by name.

    Raises:
        GeoError: a folder holds no model or adapter.
        UnfitAdapter: an adapter was trained on another base, or its weights do not fit this one.
    """

    def __init__(self, name: str, folder: Path, adapters: Mapping[str, Path]) -> None:
        if not (folder / "model.safetensors").is_file():
            inside = folder / "model"
            fix = f"Name {inside}" if inside.is_dir() else "Name the folder `model` of a built base model"
            raise GeoError(f"{folder} holds no model", fix)
        self.base = name
        self.roots = {name: folder, **adapters}
        self.processor = load_processor(folder)
        add_response_schema(self.processor)
        model = load_model(folder)
        for adapter, place in adapters.items():
            check_adapter(model, name, adapter, place)
        for adapter, place in adapters.items():
            if isinstance(model, PeftModel):
                model.load_adapter(str(place), adapter_name=adapter)
            else:
                model = PeftModel.from_pretrained(model, str(place), adapter_name=adapter)
        self.model = model.eval()
        self.tokenizer = self.processor.tokenizer
        self.pictures = Pictures(view_px(self.processor))
        self.max_length = int(self.model.config.text_config.max_position_embeddings)
        self._merged = int(self.processor.image_processor.merge_size) ** 2
        self._image_id = int(self.processor.image_token_id)
        self._forbidden = torch.tensor(vision_token_ids(self.processor))
        eos = self.model.generation_config.eos_token_id
        self._ends = set(eos if isinstance(eos, list) else [eos])
        # A fast tokenizer cannot be used by two threads at once.
        self._lock = Lock()

    def prepared(self, asked: Asked) -> Prepared:
        """Render a conversation and turn it into tensors.

        Raises:
            BadRequest: no such model, a conversation the template refuses, or one that is too long.
            ServedWrongly: placeholders and pictures do not fit.
        """
        if asked.model not in self.roots:
            known = ", ".join(self.roots)
            raise BadRequest(
                f"There is no model {asked.model!r}; there are {known}",
                "model_not_found",
                HTTPStatus.NOT_FOUND,
            )
        with self._lock:
            rendered = self.rendered(asked)
            places = rendered.count(self.processor.image_token)
            if places != len(asked.pictures):
                raise ServedWrongly(
                    f"The conversation has {places} picture places for {len(asked.pictures)} pictures"
                )
            pictures = {"images": list(asked.pictures)} if asked.pictures else {}
            inputs = dict(self.processor(text=[rendered], **pictures, return_tensors="pt"))
        self._check_pictures(inputs)
        length = int(inputs["input_ids"].shape[1])
        room = self.max_length - length
        wanted = asked.sampling.max_tokens
        if room < (wanted or 1):
            raise BadRequest(
                f"The model's context is {self.max_length} tokens; the conversation has {length} and "
                f"{wanted or 1} more are asked for. Shorten it",
                "context_length_exceeded",
            )
        key = sha256_hex(canonical_json([asked.sampling.seed, asked.model, rendered, list(asked.digests)]))
        return Prepared(asked, inputs, length, wanted or room, key)

    def rendered(self, asked: Asked) -> str:
        """The conversation as the chat template writes it, ready for the model's turn.

        Raises:
            BadRequest: the template refuses the messages.
        """
        try:
            text = self.processor.apply_chat_template(
                asked.messages, tools=asked.tools or None, add_generation_prompt=True, tokenize=False
            )
        except (TemplateError, TypeError) as error:
            raise BadRequest(f"The chat template refuses the messages: {error}", "invalid_messages") from None
        return str(text)

    def _check_pictures(self, inputs: Mapping[str, Any]) -> None:
        """One mismatch would drop every picture of a batch without a word."""
        grid = inputs.get("image_grid_thw")
        features = 0 if grid is None else int(grid.prod(-1).sum()) // self._merged
        tokens = int((inputs["input_ids"] == self._image_id).sum())
        if tokens != features:
            raise ServedWrongly(
                f"The conversation has {tokens} picture tokens for {features} picture features"
            )

    def replies(self, rows: Sequence[Prepared]) -> list[Said]:
        """One reply to each of several conversations with the same model, in one batch."""
        chooser = _OwnNoise(rows, self._forbidden)
        batch, width = self._batch(rows)
        with torch.inference_mode(), self._as(rows[0].asked.model):
            made = self.model.generate(
                **batch,
                do_sample=False,
                use_cache=True,
                max_new_tokens=max(row.max_tokens for row in rows),
                logits_processor=LogitsProcessorList([chooser]),
                stopping_criteria=StoppingCriteriaList([_OwnLength([r.max_tokens for r in rows], width)]),
            )
        return [
            self._said(row, made[number, width:].tolist(), chooser.logprobs[number])
            for number, row in enumerate(rows)
        ]

    def _as(self, name: str) -> AbstractContextManager[Any]:
        if not isinstance(self.model, PeftModel):
            return nullcontext()
        if name == self.base:
            context: AbstractContextManager[Any] = self.model.disable_adapter()
            return context
        self.model.set_adapter(name)
        return nullcontext()

    def _batch(self, rows: Sequence[Prepared]) -> tuple[dict[str, Any], int]:
        width = max(row.length for row in rows)
        fill = {"input_ids": self.tokenizer.pad_token_id, "attention_mask": 0, "mm_token_type_ids": 0}
        batch = {
            name: torch.cat(
                [
                    torch.nn.functional.pad(row.inputs[name], (width - row.length, 0), value=value)
                    for row in rows
                ]
            )
            for name, value in fill.items()
        }
        for name in ("pixel_values", "image_grid_thw"):
            found = [row.inputs[name] for row in rows if name in row.inputs]
            if found:
                batch[name] = torch.cat(found)
        return batch, width

    def _said(self, row: Prepared, ids: list[int], logprobs: list[dict[str, Any]]) -> Said:
        end = next((place for place, token in enumerate(ids) if token in self._ends), None)
        ids = ids[: row.max_tokens if end is None else end + 1]
        cut = self._stop_at(ids, row.asked.sampling.stop)
        if cut is not None:
            ids, end = ids[:cut], cut
        # `prefix` tells the parser that the template has closed the thoughts before the reply began.
        prefix = row.inputs["input_ids"][0].tolist()
        with self._lock:
            parsed = parse_response(self.tokenizer, ids, prefix=prefix, tools=row.asked.tools or None)
        message: dict[str, Any] = {"role": "assistant", "content": parsed.get("content") or ""}
        for stop in row.asked.sampling.stop if cut is not None else ():
            message["content"] = message["content"].partition(stop)[0]
        if parsed.get("reasoning_content"):
            message["reasoning_content"] = parsed["reasoning_content"]
        calls = _calls(parsed.get("tool_calls") or [], row.key)
        if calls:
            message["tool_calls"] = calls
        finish = "length" if end is None else "tool_calls" if calls else "stop"
        shown = None if row.asked.sampling.logprobs is None else self._shown(logprobs[: len(ids)])
        return Said(message, finish, len(ids), shown)

    def _stop_at(self, ids: list[int], stops: Sequence[str]) -> int | None:
        """Tokens up to and with the one that completes a stop text; None where none occurs."""
        if not stops:
            return None
        with self._lock:
            if not any(stop in self.tokenizer.decode(ids) for stop in stops):
                return None
            counts = range(1, len(ids) + 1)
            return next(n for n in counts if any(stop in self.tokenizer.decode(ids[:n]) for stop in stops))

    def _shown(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        def named(pair: Sequence[Any]) -> dict[str, Any]:
            token = self.tokenizer.decode([int(pair[0])])
            return {"token": token, "logprob": float(pair[1]), "bytes": list(token.encode())}

        content = [
            named(entry["chosen"]) | {"top_logprobs": [named(pair) for pair in entry["top"]]}
            for entry in entries
        ]
        return {"content": content, "refusal": None}


class _OwnNoise(LogitsProcessor):
    """Turns logits into values whose maximum is each row's own draw."""

    def __init__(self, rows: Sequence[Prepared], forbidden: Any) -> None:
        self._sampling = [row.asked.sampling for row in rows]
        self._noise = [torch.Generator().manual_seed(int(row.key[:15], 16)) for row in rows]
        self._forbidden = forbidden
        self.logprobs: list[list[dict[str, Any]]] = [[] for _ in rows]

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        scores = scores.double()
        scores[:, self._forbidden] = -torch.inf
        drawn = torch.stack([self._perturbed(number, row) for number, row in enumerate(scores)])
        for number, sampling in enumerate(self._sampling):
            if sampling.logprobs is not None:
                self.logprobs[number].append(_logprobs(scores[number], drawn[number], sampling.logprobs))
        return drawn

    def _perturbed(self, number: int, logits: Any) -> Any:
        sampling = self._sampling[number]
        if sampling.temperature == 0.0:
            return logits
        gumbel = -torch.empty_like(logits).exponential_(generator=self._noise[number]).log()
        return _truncated(logits / sampling.temperature, sampling) + gumbel


class _OwnLength(StoppingCriteria):
    """Ends each row at its own number of tokens."""

    def __init__(self, limits: Sequence[int], width: int) -> None:
        self._limits = torch.tensor(limits)
        self._width = width

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        return self._limits <= input_ids.shape[1] - self._width


def _truncated(logits: Any, sampling: Sampling) -> Any:
    if 0 < sampling.top_k < len(logits):
        least = logits.topk(sampling.top_k).values[-1]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if sampling.top_p < 1.0:
        ordered, places = logits.sort(descending=True)
        before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
        logits = logits.index_fill(0, places[before > sampling.top_p], -torch.inf)
    return logits


def _logprobs(logits: Any, drawn: Any, alternatives: int) -> dict[str, Any]:
    """Log-probabilities before temperature and truncation, as OpenAI gives them."""
    values, chosen = logits.log_softmax(-1), int(drawn.argmax())
    best = values.topk(alternatives) if alternatives else None
    top = [] if best is None else list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return {"chosen": (chosen, float(values[chosen])), "top": top}


def _calls(found: Sequence[Mapping[str, Any]], key: str) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{key[:20]}_{number}",
            "type": "function",
            "function": {
                "name": str(call["function"]["name"]),
                "arguments": json.dumps(call["function"].get("arguments") or {}, ensure_ascii=False),
            },
        }
        for number, call in enumerate(found)
    ]


def check_adapter(model: Any, base: str, name: str, folder: Path) -> None:
    """Make sure that an adapter belongs on a base, before anything loads it and guesses.

    Raises:
        GeoError: the folder holds no adapter that can be read.
        UnfitAdapter: it names another base, or a weight of it has no place of its shape in the base.
    """
    try:
        said = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        with safe_open(folder / ADAPTER_WEIGHTS, framework="pt") as weights:
            shapes = {key: tuple(weights.get_slice(key).get_shape()) for key in weights.keys()}  # noqa: SIM118
        recorded, rank = str(said["base_model_name_or_path"]), int(said["r"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise GeoError(f"{folder} holds no readable LoRA adapter ({type(error).__name__}: {error})") from None
    if recorded != base:
        raise UnfitAdapter(
            f"Adapter {name} was trained on {recorded} and cannot be served on {base}",
            f"Serve it on {recorded}, or train it again on {base}",
        )
    modules = dict(model.named_modules())
    for key, shape in shapes.items():
        wanted = _wanted(modules, key, rank)
        if shape != wanted:
            place = "which the base does not have" if wanted is None else f"where {base} takes {wanted}"
            raise UnfitAdapter(
                f"Adapter {name} does not fit {base}: its {key} is {shape}, {place}",
                f"Train it again on {base}",
            )
    if not shapes:
        raise UnfitAdapter(f"Adapter {name} holds no weights", f"Train it again on {base}")


def _wanted(modules: Mapping[str, Any], key: str, rank: int) -> tuple[int, ...] | None:
    """Shape of a LoRA weight on the module it is for; None where the model has no such module."""
    path, _, half = key.removeprefix(PEFT_PREFIX).rpartition(".lora_")
    weight = getattr(modules.get(path), "weight", None)
    if weight is None or weight.ndim != 2:
        return None
    # A turns `in` features into `rank` of them, B those into `out`; a linear layer's weight is (out, in).
    return {"A.weight": (rank, int(weight.shape[1])), "B.weight": (int(weight.shape[0]), rank)}.get(half)
