"""Whether an adapter's weights fit the base that stands here, told from the heads of their files alone.

An adapter of another base may carry the right name, and a server may load what fits of it. So before anything
is served, each LoRA pair is held against the linear layer it sits on: A turns its `in` features into `rank`,
B those into `out`. The layers come from the base's own weights where they are on this machine (its folder, or
the Hub's cache), else from its `config.json`; where there is neither, the server's own loading must do.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from geo_assets.sweeps.served_models import WrongBaseServed
from geo_assets.training.weights import tensor_shapes

CONFIG = "config.json"
PEFT_PREFIX = "base_model.model."
INDEX = "model.safetensors.index.json"
MANY = 10**6
Layer = tuple[int | None, int | None]
"""Features out and in, as the weight of a linear layer has them; None where nothing tells."""

_HALF = re.compile(r"(.+)\.lora_([AB])(?:\.\w+)?\.weight")
_LAYER = re.compile(r"layers\.(\d+)\..+")
_FROM_HIDDEN = re.compile(r"[qkv]_proj|in_proj_\w+")


def check_shapes(
    adapter: Path, rank: int | None, base: Path | None, names: tuple[str, str], fix: str
) -> None:
    """Make sure that every LoRA weight has a place of its shape in the base.

    Args:
        adapter: folder of the adapter's weights.
        rank: of all of them; None where they have ranks of their own.
        base: folder of the base; None where it is not on this machine.
        names: of the adapter and of the base, for messages.
        fix: what to do about one that does not fit.

    Raises:
        WrongBaseServed: names the weight, its shape and the one that the base takes.
        GeoError: a file of weights is damaged.
    """
    layer_of = _layers(base) if base is not None else None
    if layer_of is None:
        return
    for key, shape in tensor_shapes(adapter).items():
        half = _HALF.fullmatch(key.removeprefix(PEFT_PREFIX))
        if half is None or len(shape) != 2:
            continue
        layer = layer_of(half[1])
        mine, place = f"its {key:.200} is {_words(shape)}", f"and {names[1]} has no such layer"
        if layer is not None:
            own = rank if rank is not None else shape[0 if half[2] == "A" else 1]
            takes = (own, layer[1]) if half[2] == "A" else (layer[0], own)
            wanted = tuple(known or given for known, given in zip(takes, shape, strict=True))
            if wanted == shape:
                continue
            place = f"where {names[1]} takes {_words(wanted)}"
        raise WrongBaseServed(f"{names[0]} does not fit {names[1]}: {mine}, {place}", fix)


def base_folder(weights: Path, repo: str, revision: str) -> Path | None:
    """Where a base's files are on this machine: in its own folder, or the Hub's cache; None where nowhere."""
    if weights.is_dir():
        return weights
    if "/" not in repo:
        return None
    from huggingface_hub import try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(repo, CONFIG, revision=revision or None)
    except ValueError:  # no name of a repository
        return None
    return Path(cached).parent if isinstance(cached, str) else None


def _layers(base: Path) -> Callable[[str], Layer | None] | None:
    """What gives a linear layer of a base by its name; None where nothing here tells of any."""
    layers = _weights(base)
    if layers:
        tails = {tail: layer for name, layer in layers.items() if (tail := _tail(name))}
        return lambda name: layers.get(name) or tails.get(_tail(name))
    text = _text_config(base)
    return (lambda name: _by_config(name, text)) if "hidden_size" in text else None


def _weights(base: Path) -> dict[str, Layer]:
    """The linear layers by name; none where a part of the weights is not here, as in the Hub's cache."""
    try:
        parts = set(json.loads((base / INDEX).read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        parts = set()
    if not all((base / str(part)).exists() for part in parts):
        return {}
    return {
        name.removesuffix(".weight"): (shape[0], shape[1])
        for name, shape in tensor_shapes(base).items()
        if name.endswith(".weight") and len(shape) == 2
    }


def _by_config(name: str, text: Mapping[str, int]) -> Layer | None:
    """A layer of the language model, as far as the sizes of the configuration say it."""
    found = _LAYER.search(name)
    if found is None or "visual" in name:
        return None, None
    if int(found[1]) >= text.get("num_hidden_layers", MANY):
        return None
    # Experts have widths of their own.
    inner = text.get("intermediate_size") if ".mlp." in name and "expert" not in name else None
    hidden, last = text["hidden_size"], name.rpartition(".")[2]
    if last in ("gate_proj", "up_proj"):
        return inner, hidden
    if last in ("down_proj", "o_proj", "out_proj"):
        return hidden, inner if last == "down_proj" else None
    return None, hidden if _FROM_HIDDEN.fullmatch(last) else None


def _text_config(base: Path) -> dict[str, int]:
    """Sizes of the language model; empty where no configuration says them."""
    try:
        said = json.loads((base / CONFIG).read_text(encoding="utf-8"))
        said = said.get("text_config") or said
        return {name: value for name, value in said.items() if type(value) is int}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _tail(name: str) -> str:
    """What repositories agree on in a layer's name, whatever stands before it; empty of the eyes' layers."""
    found = _LAYER.search(name)
    return found.group() if found and "visual" not in name else ""


def _words(shape: Sequence[int]) -> str:
    return "(" + ", ".join(str(size) for size in shape) + ")"
