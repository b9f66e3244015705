"""The tiny base models: their tower, how they are brought up, and the assets they are."""

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pytest
import torch
from base_models_lab import (
    BASE,
    LISTING,
    PX,
    SANDBOX,
    SMALL,
    SMALLER,
    TURNS,
    Built,
    brief,
    hub_of,
    materialized,
    same,
    silent,
    small_stage,
    tensors,
)
from PIL import Image
from vlm_lab import build_adapter

from geo_assets.config.settings import BASE_2B, BASE_4B
from geo_assets.lineage.folders import AssetFolder, MissingUpstream
from geo_assets.training.base_models import NAMES, base_model_assets
from geo_assets.training.bring_up import bring_up
from geo_assets.training.lessons import (
    Lesson,
)
from geo_assets.training.tiny_base_model import tiny_base_model
from geo_assets.training.warm_start import (
    loss_of,
    sample_of,
)
from geo_assets.training.warm_start_world import warm_start_world
from geo_assets.training.weights import weights_sha256
from resources.sandbox.vlm import small_world
from resources.sandbox.vlm.generation import UnfitAdapter, check_adapter
from resources.sandbox.vlm.processor import TinyVLProcessor, load_model, load_processor, view_px
from resources.sandbox.vlm.tower import tower_features

# --- the tower --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_fast_tower_is_the_librarys(untrained: dict[str, Path], name: str) -> None:
    processor, model = load_processor(untrained[name]), load_model(untrained[name])
    tower, px = model.model.visual, view_px(processor)
    pictures = np.random.default_rng(0).integers(0, 256, (3, px, px, 3), np.uint8)
    own = tower_features(tower, pictures)
    ready = processor.image_processor([Image.fromarray(each) for each in pictures], return_tensors="pt")
    theirs = tower(ready["pixel_values"], grid_thw=ready["image_grid_thw"]).pooler_output
    theirs = theirs.reshape(own.shape)
    assert float((own - theirs).detach().abs().max()) < 1e-4 and float(own.detach().std()) > 1e-3
    found = []
    for features in (own, theirs):
        tower.zero_grad()
        features.square().sum().backward()
        found.append({key: weight.grad.clone() for key, weight in tower.named_parameters()})
    for key, gradient in found[0].items():
        largest = float(found[1][key].abs().max())
        assert float((gradient - found[1][key]).abs().max()) <= 1e-3 * largest + 1e-5, key
    assert sum(float(gradient.abs().max()) > 0 for gradient in found[0].values()) == len(found[0])


# --- bringing up ------------------------------------------------------------------------------------------


def test_a_model_folder_is_whole(built: Built, processor: Any, lessons: list[Lesson]) -> None:
    assert isinstance(processor, TinyVLProcessor) and view_px(processor) == PX
    model = load_model(built.model).eval()
    with torch.no_grad():
        loss = loss_of(model, [sample_of(processor, lessons[0], "rollout")], processor.tokenizer.pad_token_id)
    assert math.isfinite(float(loss))
    assert model.config.text_config.hidden_size == SANDBOX.base_model_4b.shape.hidden
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model.generation_config.eos_token_id == processor.tokenizer.eos_token_id


def test_the_same_seed_gives_the_same_model(built: Built, url: str, tmp_path: Path) -> None:
    spec = built.stage.specs.base_model_4b
    losses = bring_up(tmp_path / "again", spec, built.world, url, TURNS, silent)
    assert weights_sha256(tmp_path / "again") == weights_sha256(built.model)
    names = {path.name for path in built.model.iterdir()}
    assert {path.name for path in (tmp_path / "again").iterdir()} == names
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (built.model / name).read_bytes(), name
    published = AssetFolder(built.home, BASE).built()
    assert published is not None and {**published.facts, **losses} == published.facts
    assert torch.get_num_threads() == 1


def test_the_tower_learns_first_and_is_left_alone_then(built: Built, url: str, tmp_path: Path) -> None:
    first = tensors(built.model)
    bring_up(tmp_path / "longer", brief(steps=5), built.world, url, TURNS, silent)
    longer = tensors(tmp_path / "longer")
    assert all(same(first["tower"], longer["tower"])), "conversations do not touch the tower"
    assert not all(same(first["language"], longer["language"]))
    bring_up(tmp_path / "seen", brief(vision_steps=3, steps=1), built.world, url, TURNS, silent)
    assert not any(same(first["tower"], tensors(tmp_path / "seen")["tower"]))
    bring_up(tmp_path / "other", brief(steps=1, seed=9), built.world, url, TURNS, silent)
    assert not any(same(first["tower"], tensors(tmp_path / "other")["tower"]))


def test_an_adapter_of_one_shape_does_not_fit_the_other(untrained: dict[str, Path], tmp_path: Path) -> None:
    models = {name: load_model(folder) for name, folder in untrained.items()}
    for own, other in ((BASE, SMALLER), (SMALLER, BASE)):
        adapter = tmp_path / own
        build_adapter(untrained[own], adapter, name=own)
        check_adapter(models[own], own, "adapter_x", adapter)
        with pytest.raises(UnfitAdapter, match=f"was trained on {own} and cannot be served on {other}"):
            check_adapter(models[other], other, "adapter_x", adapter)
        config = adapter / "adapter_config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"base_model_name_or_path": other}))
        with pytest.raises(UnfitAdapter, match=f"does not fit {other}: its .* is "):
            check_adapter(models[other], other, "adapter_x", adapter)


# --- assets -----------------------------------------------------------------------------------------------


def test_the_worlds_asset(built: Built) -> None:
    published = AssetFolder(built.home, "warm_start_world").built()
    assert published is not None and published.data_version == built.drawn.data_version
    world = small_world.read(published.path)
    assert published.facts["places"] == SMALL.places and published.facts["played"] == SMALL.played
    assert published.facts["countries"] == len(set(world.codes)) > 1
    pictures = [value for value in built.drawn.metadata.values() if "data:image/" in str(value)]
    assert len(pictures) == 1 and built.drawn.metadata["dagster/row_count"] == SMALL.places
    again = warm_start_world.code_version(built.stage)
    other = replace(built.stage, specs=replace(built.stage.specs, small_world=replace(SMALL, seed=1)))
    assert warm_start_world.code_version(other) != again


def test_the_models_asset(built: Built) -> None:
    published = AssetFolder(built.home, BASE).built()
    assert published is not None and published.data_version == built.brought_up.data_version
    assert {path.name for path in published.path.iterdir()} == {"model", "_asset.json", "_lineage.json"}
    assert not (built.model / "left_behind.safetensors").exists()
    facts, spec = published.facts, SANDBOX.base_model_4b
    assert facts["name"] == BASE and facts["revision"] == published.data_version
    assert (facts["view_px"], facts["shape"]["hidden"]) == (spec.shape.view_px, spec.shape.hidden)
    assert facts["stands_in_for"] == spec.repo and facts["faults"]["favourite"] == spec.faults.favourite
    assert all(math.isfinite(facts[name]) for name in ("vision_loss", "conversation_loss"))
    assert built.brought_up.metadata["seconds"] > 0


def test_each_base_has_a_code_version_of_its_own(built: Built) -> None:
    first, second = (tiny_base_model(name) for name in NAMES)
    stage = built.stage
    longer = replace(stage, specs=replace(stage.specs, base_model_2b=brief(BASE_2B, steps=9)))
    assert first.code_version(stage) == first.code_version(longer)
    assert second.code_version(stage) != second.code_version(longer)
    turns = replace(stage.specs.environment, max_turns=7)
    budget = replace(stage, specs=replace(stage.specs, environment=turns))
    assert first.code_version(stage) != first.code_version(budget), "its lessons name the budget"


def test_a_failed_bring_up_leaves_the_earlier_model_standing(built: Built, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(built.home, home)
    before = {path: path.read_bytes() for path in (home / BASE / "model").iterdir()}
    before[home / BASE / "_asset.json"] = (home / BASE / "_asset.json").read_bytes()
    unspeakable = replace(brief(), faults=replace(brief().faults, favourite=1.0, favourite_at=(1000, 0)))
    with pytest.raises(KeyError):  # in the middle of the conversations
        materialized(tiny_base_model(BASE), small_stage(home, base_model_4b=unspeakable))
    assert {path: path.read_bytes() for path in before} == before
    assert {path.name for path in (home / BASE / "model").iterdir()} == {
        path.name for path in before if path.parent.name == "model"
    }


def test_a_missing_world_is_named(tmp_path: Path) -> None:
    with pytest.raises(dg.Failure) as caught:
        materialized(tiny_base_model(BASE), small_stage(tmp_path / "home"))
    assert "base_model_4b needs warm_start_world" in str(caught.value.description)
    assert MissingUpstream.__name__ not in str(caught.value.description)


def test_a_live_base_is_a_look_at_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    home, spec, first, second = tmp_path / "home", BASE_4B, "1" * 40, "2" * 40
    stage = small_stage(home, "live", base_model_4b=BASE_4B)
    base = {asset.names[0]: asset for asset in base_model_assets(stage)}[BASE]
    with hub_of(spec.repo, **{spec.revision: first}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        seen = materialized(base, stage)
        published = AssetFolder(home, BASE).built()
        assert published is not None and seen.data_version == published.data_version == first
        assert (published.facts["repo"], published.facts["revision"]) == (spec.repo, first)
        assert {path.name for path in published.path.iterdir()} == {"_asset.json", "_lineage.json"}, (
            "no weights"
        )
        assert materialized(base, stage).data_version == first
        hub.commits[spec.revision] = second
        assert materialized(base, stage).data_version == second
        unknown = small_stage(home, "live", base_model_4b=replace(spec, revision="no-such-branch"))
        with pytest.raises(dg.Failure) as caught:
            materialized(base, unknown)
        said = f"{spec.repo} has no revision no-such-branch on the Hub. Correct the pinned revision"
        assert caught.value.description == said
        assert base.code_version(unknown) != base.code_version(stage)
        published = AssetFolder(home, BASE).built()
        assert published is not None and published.data_version == second, "what was seen last stands"
        assert {path.rpartition("/")[2] for path in hub.asked} == {spec.revision, "no-such-branch"}


def test_the_profiles_bases(tmp_path: Path) -> None:
    names = {
        profile: [asset.names[0] for asset in base_model_assets(small_stage(tmp_path / profile, profile))]
        for profile in ("sandbox", "live", "recorded")
    }
    assert names == {"sandbox": list(NAMES), "live": list(NAMES), "recorded": []}
    live, sandbox = (
        {asset.names[0]: asset for asset in base_model_assets(small_stage(tmp_path / profile, profile))}[BASE]
        for profile in ("live", "sandbox")
    )
    assert live.deps == () and sandbox.deps == ("warm_start_world",)


def test_listing_the_assets_imports_no_torch(tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", LISTING],
        env={**os.environ, "MAPILLARY_ACCESS_TOKEN": "MLY|1|a", "GEO_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    heavy, found = json.loads(said.stdout.splitlines()[-1])
    assert heavy == []
    assert {*NAMES, "warm_start_world"} <= set(found["sandbox"])
    assert set(NAMES) <= set(found["live"]) and "warm_start_world" not in found["live"]
    assert not [name for name in found["recorded"] if name.startswith(("base_model", "warm_start"))]
