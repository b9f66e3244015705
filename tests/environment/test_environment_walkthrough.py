"""`geo walkthrough` ends with its guess whatever the budget, and says so where there was none."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from environment_lab import World

from env_service.models import GeoObservation
from geo_assets.cli import walkthrough


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_small_budget_ends_with_the_guess(
    turns: int,
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    split = {"tasks": str(world.tasks), "panos": str(world.panos)}
    config = {"splits": {"eval": split}, "mode": "simulation", "max_turns": turns}
    (tmp_path / "config.json").write_text(json.dumps(config))
    stage = SimpleNamespace(settings=SimpleNamespace(home=tmp_path))
    monkeypatch.setattr("geo_assets.definitions.load_stage", lambda: stage)
    monkeypatch.setattr(
        "geo_assets.lineage.folders.require", lambda *_: SimpleNamespace(path=tmp_path, facts={})
    )
    walkthrough.walkthrough(index=0, out=tmp_path / "frames")
    said = capsys.readouterr().out
    assert f"turn {turns:2d}  guess(" in said and " km away." in said and "no guess" not in said
    assert said.count("turn ") >= turns and f"turn {turns + 1:2d} " not in said


def test_the_script_is_cut_before_its_guess() -> None:
    for turns in range(1, len(walkthrough.SCRIPT) + 5):
        script = walkthrough._affordable(turns)
        assert script[-1]["op"] == "guess" and len(script) == min(turns, len(walkthrough.SCRIPT))
        assert script[:-1] == walkthrough.SCRIPT[: len(script) - 1]


def test_an_end_without_a_guess_is_said() -> None:
    end = GeoObservation(done=True, true_lat=48.8584, true_lon=2.2945)
    assert walkthrough._truth(end) == "The truth was 48.8584, 2.2945: no guess."
    assert "not over" in walkthrough._truth(GeoObservation())
