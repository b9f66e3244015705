"""Whether an adapter's weights fit its base, told from the heads of files that hold nothing else."""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from env_service.errors import GeoError
from geo_assets.lineage.folders import Published
from geo_assets.sweeps.adapter_serving import Pair, check_lineage
from geo_assets.sweeps.adapter_shapes import base_folder
from geo_assets.sweeps.served_models import WrongBaseServed

Q, DOWN = "model.language_model.layers.0.self_attn.q_proj", "model.language_model.layers.0.mlp.down_proj"
BASE = {f"{Q}.weight": (128, 64), f"{DOWN}.weight": (64, 192), "model.norm.weight": (64,)}
TEXT = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 1, "layer_types": ["full"]}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def lora(q_in: int = 64, q_out: int = 128, down_in: int = 192, rank: int = 4, layer: str = "0") -> dict:  # type: ignore[type-arg]
    q, down = (f"base_model.model.{name.replace('.0.', f'.{layer}.')}" for name in (Q, DOWN))
    return {
        f"{q}.lora_A.weight": (rank, q_in),
        f"{q}.lora_B.weight": (q_out, rank),
        f"{down}.lora_A.weight": (rank, down_in),
        f"{down}.lora_B.weight": (64, rank),
    }


def write_heads(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """A file of weights without the weights."""
    entries = {
        name: {"dtype": "BF16", "shape": list(s), "data_offsets": [0, 0]} for name, s in shapes.items()
    }
    header = json.dumps(entries).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header)


def pair(home: Path, weights: Mapping[str, tuple[int, ...]], **config: object) -> Pair:
    """A base on the Hub, and an adapter in a folder."""
    write_heads(home / "a/adapter/adapter_model.safetensors", weights)
    said = {"base_model_name_or_path": "org/base", "revision": COMMIT, "r": 4} | config
    (home / "a/adapter/adapter_config.json").write_text(json.dumps(said))
    facts = {"base": "b", "base_version": COMMIT}
    return Pair(
        Published("b", home / "b", COMMIT, {"repo": "org/base", "revision": COMMIT}),
        Published("a", home / "a", "v", facts),
    )


WRONG = [
    (lora(q_in=96), r"q_proj\.lora_A\.weight is \(4, 96\), where b takes \(4, 64\)"),
    (lora(down_in=100), r"down_proj\.lora_A\.weight is \(4, 100\), where b takes \(4, 192\)"),
    (lora(rank=8), r"is \(8, 64\), where b takes \(4, 64\)"),
    (lora(layer="1"), r"layers\.1\..* is \(4, 64\), and b has no such layer"),
]


@pytest.mark.parametrize(("weights", "words"), WRONG)
@pytest.mark.parametrize("known", ["weights", "configuration"])
def test_weights_of_another_shape_are_refused_before_anything_is_served(
    tmp_path: Path, known: str, weights: dict[str, tuple[int, ...]], words: str
) -> None:
    (tmp_path / "b/model").mkdir(parents=True)
    if known == "weights":
        write_heads(tmp_path / "b/model/model.safetensors", BASE)
    else:
        (tmp_path / "b/model/config.json").write_text(json.dumps({"text_config": TEXT}))
    check_lineage(pair(tmp_path, lora()))
    with pytest.raises(WrongBaseServed, match=f"a does not fit b: its .*{words}.*--select a"):
        check_lineage(pair(tmp_path, weights))


def test_what_only_the_weights_tell(tmp_path: Path) -> None:
    write_heads(tmp_path / "b/model/model.safetensors", BASE)
    with pytest.raises(WrongBaseServed, match=r"lora_B\.weight is \(96, 4\), where b takes \(128, 4\)"):
        check_lineage(pair(tmp_path, lora(q_out=96)))
    check_lineage(pair(tmp_path, lora(rank=8), rank_pattern={".*": 8}))
    # Repositories name what stands before the layers otherwise than the model does once it is loaded.
    write_heads(
        tmp_path / "b/model/model.safetensors",
        {name.replace("model.language_model.", "model."): shape for name, shape in BASE.items()},
    )
    check_lineage(pair(tmp_path, lora()))
    with pytest.raises(WrongBaseServed, match=r"where b takes \(4, 64\)"):
        check_lineage(pair(tmp_path, lora(q_in=96)))


def test_a_base_in_the_hubs_cache_is_looked_at_as_far_as_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    check_lineage(pair(tmp_path, lora(q_in=96)))  # nobody here can tell
    snapshot = tmp_path / "hub/models--org--base/snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps({"text_config": TEXT}))
    assert base_folder(tmp_path / "b/model", "org/base", COMMIT) == snapshot
    with pytest.raises(WrongBaseServed, match=r"where b takes \(4, 64\)"):
        check_lineage(pair(tmp_path, lora(q_in=96)))
    # A shard is missing: what the other holds is not all of the base.
    (snapshot / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {f"{Q}.weight": "one.safetensors", f"{DOWN}.weight": "two.safetensors"}})
    )
    write_heads(snapshot / "one.safetensors", {f"{Q}.weight": (128, 64)})
    check_lineage(pair(tmp_path, lora(q_out=96)))
    write_heads(snapshot / "two.safetensors", {f"{DOWN}.weight": (64, 192)})
    check_lineage(pair(tmp_path, lora()))
    with pytest.raises(WrongBaseServed, match=r"where b takes \(128, 4\)"):
        check_lineage(pair(tmp_path, lora(q_out=96)))
    assert base_folder(tmp_path / "b/model", "base", COMMIT) is None


def test_a_head_without_shapes_is_said(tmp_path: Path) -> None:
    write_heads(tmp_path / "b/model/model.safetensors", BASE)
    made = pair(tmp_path, lora())
    header = json.dumps({"x": {"dtype": "BF16"}}).encode()
    path = tmp_path / "a/adapter/adapter_model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(GeoError, match="does not say the shape of x"):
        check_lineage(made)
