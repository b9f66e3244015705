"""The arm that a job serves from a base model's repository follows that base model's asset."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from geo_assets.config.arms import load_arms
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage, StageRun
from geo_assets.lineage.folders import AssetFolder, MissingUpstream
from geo_assets.sweeps import factory
from geo_assets.sweeps.factory import base_of, sweep_arm, sweep_assets
from geo_assets.sweeps.self_hosted import served_commit

ARM = load_arms("live").get("qwen3_5_4b")


def stage_of(profile: str, home: Path = Path("nowhere")) -> Stage:
    """A profile in some home."""
    settings = load_settings({"GEO_PROFILE": profile, "GEO_HOME": str(home)})
    return Stage(settings, stage_specs(settings.profile))


def test_live_the_base_arms_of_adapters_have_their_base_model_as_parent_and_no_other_arm_has() -> None:
    parents = {asset.names[0]: set(asset.deps[1:]) for asset in sweep_assets(stage_of("live"))}
    assert {name: found for name, found in parents.items() if found} == {
        "sweep_qwen3_5_4b": {"base_model_4b"},
        "sweep_qwen3_5_2b": {"base_model_2b"},
    }
    assert not any(asset.deps[1:] for asset in sweep_assets(stage_of("sandbox")))


def test_an_arm_with_a_revision_or_an_address_of_its_own_follows_none() -> None:
    assert base_of(ARM, stage_of("live")) == "base_model_4b"
    for own in ({"revision": "v1"}, {"base_url": "http://there/v1"}):
        assert base_of(ARM.model_copy(update=own), stage_of("live")) == ""


def test_another_commit_of_the_base_is_served_and_begins_the_sweep_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Any] = []

    class Reached(Exception):
        """The model would be served now."""

    def capture(arm: Any, config: Path, say: Any, folder: Path, purpose: str, commit: str) -> Any:
        served.append(commit)
        raise Reached

    monkeypatch.setattr(factory, "served_environment", lambda *arguments: nullcontext())
    monkeypatch.setattr(factory, "served_model", capture)
    run = StageRun(stage_of("live", tmp_path), "sweep_qwen3_5_4b", lambda text: None)
    AssetFolder(tmp_path, "eval_environment").publish("e", {"tasks": 1})
    with pytest.raises(MissingUpstream, match="needs base_model_4b"):
        sweep_arm(run, ARM)
    models = []
    for commit in ("a" * 40, "b" * 40):
        AssetFolder(tmp_path, "base_model_4b").publish(commit, {"revision": commit})
        with pytest.raises(Reached):
            sweep_arm(run, ARM)
        identity = json.loads((tmp_path / "sweeps" / ARM.slug / "identity.json").read_text())
        models.append(identity["model"])
    assert served == models == ["a" * 40, "b" * 40]


def test_what_the_asset_resolved_counts_and_is_kept_beside_the_episodes(tmp_path: Path) -> None:
    (tmp_path / "episodes.jsonl").write_text("{}\n")
    (tmp_path / "served.json").write_text(json.dumps({"commit": "a" * 40}))
    assert served_commit(ARM, None, tmp_path, "b" * 40) == "b" * 40
    assert json.loads((tmp_path / "served.json").read_text())["commit"] == "b" * 40
