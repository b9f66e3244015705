"""The world on which base models are brought up, and the bedrock colours of the Earth it is drawn from."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from base_models_lab import (
    SANDBOX,
    SMALL,
    TINY,
    Built,
    drawn_on_an_edited_earth,
    shown,
    silent,
    small_stage,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from env_service.client import GeoGuessrEnv
from env_service.store import PanoramaStore
from env_service.tasks import read_tasks
from env_service.views import render_view
from geo_assets.lineage.assets import StageRun
from geo_assets.training.warm_start_world import warm_start_world
from resources.sandbox.earth import climate
from resources.sandbox.earth.panorama import draw_panorama
from resources.sandbox.vlm import small_world
from resources.sandbox.vlm.processor import scaled
from resources.sandbox.vlm.specs import SmallWorldSpec
from resources.sandbox.world import World, WorldSpec

# --- the small world --------------------------------------------------------------------------------------


class Interrupted(Exception):
    """Ends a drawing on its way."""


def test_the_same_spec_gives_the_same_world_and_goes_on_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_world, "CHUNK", 3)
    whole, again = tmp_path / "whole", tmp_path / "again"
    small_world.make(whole, TINY, silent)
    wanted = small_world.files_of(whole)

    def interrupt(_: str) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        small_world.make(again, TINY, interrupt)
    (first,) = (again / "views").glob("*.npy")
    (again / "views" / "0001.part").write_bytes(first.read_bytes()[:100])
    kept = first.stat().st_mtime_ns
    small_world.make(again, TINY, silent)
    assert small_world.files_of(again) == wanted
    chunks = sorted((again / "views").glob("*"))
    assert len(chunks) == 3 and first.stat().st_mtime_ns == kept
    earlier = {path: path.stat().st_mtime_ns for path in chunks[:-1]}
    chunks[-1].unlink()
    small_world.make(again, TINY, silent)
    assert small_world.files_of(again) == wanted
    assert {path: path.stat().st_mtime_ns for path in earlier} == earlier


@pytest.mark.parametrize("change", [{"seed": 6}, {"played": 2}, {"view_px": 64}, {"places": 4}])
def test_another_spec_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, int]
) -> None:
    monkeypatch.setattr(small_world, "CHUNK", 3)
    other: SmallWorldSpec = replace(TINY, **change)
    for spec in (TINY, other):
        small_world.make(tmp_path / "changed", spec, silent)
    small_world.make(tmp_path / "fresh", other, silent)
    fresh = small_world.files_of(tmp_path / "fresh")
    assert (
        small_world.read(tmp_path / "changed").views.shape == small_world.read(tmp_path / "fresh").views.shape
    )
    assert small_world.files_of(tmp_path / "changed") == fresh


def test_an_edited_earth_is_drawn_anew(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    stage = small_stage(old, small_world=TINY)
    before = warm_start_world.compute(StageRun(stage, "warm_start_world", silent))
    (code, again), (new_code, fresh) = drawn_on_an_edited_earth(tmp_path / "edited", TINY, old, new)
    assert code == new_code != warm_start_world.code_version(stage), "the asset turns stale"
    assert fresh != before.data_version
    assert again == fresh, "and building it again draws it again"


def test_the_task_file_is_valid_and_its_pictures_are_there(built: Built) -> None:
    world, tasks = small_world.read(built.world), read_tasks(built.world / "tasks.jsonl")
    store = PanoramaStore(built.world / "panos")
    assert len(tasks) == SMALL.played and [task.task_index for task in tasks] == list(range(len(tasks)))
    assert len(store.list_ids()) == 2 * len(tasks)
    for number, task in enumerate(tasks):
        assert len(task.frames) == 2 and all(store.exists(frame.image_id) for frame in task.frames)
        start = task.frames[task.start_frame]
        assert (start.lat, start.lon) == (world.lat[number], world.lon[number])
        assert task.country_code == world.codes[number]
    assert world.views.shape == (SMALL.places, 8, SMALL.view_px, SMALL.view_px, 3)
    assert len(world.codes) == len(world.lat) == SMALL.places


def test_views_are_the_environments_scaled_down_once(built: Built) -> None:
    spec = WorldSpec(seed=SMALL.seed, pano_sequences=SMALL.places, perspective_sequences=0)
    world, drives = small_world.read(built.world), World.build(spec)
    at = {
        (frame.lat, frame.lon): (drive, position)
        for drive in drives.sequences
        for position, frame in enumerate(drive.frames)
    }
    for place in (0, SMALL.played - 1, SMALL.played, SMALL.places - 1):
        drive, position = at[(world.lat[place], world.lon[place])]
        scene = drive.scene(position)
        pano = draw_panorama(scene, SMALL.played_pano_px if place < SMALL.played else SMALL.pano_px)
        for number in (0, 3, 6):
            size = SMALL.view_px * small_world.OVERSAMPLED
            view = render_view(
                pano,
                scene.heading_deg,
                small_world.HEADINGS[number],
                0.0,
                small_world.FIELD_OF_VIEW_DEG,
                size,
            )
            small = np.asarray(scaled(Image.fromarray(view), SMALL.view_px))
            assert np.array_equal(small, world.views[place, number]), (place, number)


def test_what_is_served_is_what_the_tower_saw(built: Built, url: str) -> None:
    views = small_world.read(built.world).views.astype(np.float32)
    with GeoGuessrEnv(url) as env:
        for place in range(SMALL.played):
            for number in (None, 2, 5):
                if number is None:
                    seen = env.reset(split="train", index=place).observation
                else:
                    seen = env.step({"op": "look", "heading_deg": 45.0 * number}).observation
                off = np.abs(views - np.asarray(shown(seen), np.float32)).mean(axis=(2, 3, 4))
                assert np.unravel_index(off.argmin(), off.shape) == (place, number or 0)


@pytest.fixture(scope="module")
def both_worlds() -> tuple[World, World]:
    """The project's world, and the one on which base models are brought up, as the sandbox has them."""
    own = SANDBOX.small_world
    return (
        World.build(WorldSpec(**asdict(SANDBOX.world))),
        World.build(WorldSpec(seed=own.seed, pano_sequences=own.places, perspective_sequences=0)),
    )


def test_its_drives_are_not_the_projects(both_worlds: tuple[World, World]) -> None:
    for name in ("sequence_id", "seed"):
        project, own = ({getattr(drive, name) for drive in world.sequences} for world in both_worlds)
        assert not project & own, name


def test_its_pictures_have_no_id_of_the_projects(built: Built, both_worlds: tuple[World, World]) -> None:
    project = {str(id) for drive in both_worlds[0].sequences for id in drive.image_ids}
    own = set(PanoramaStore(built.world / "panos").list_ids())
    assert own and not project & own


# --- the Earth --------------------------------------------------------------------------------------------

TINTS = [
    (climate.STONE_WAVES, climate.STONE_STRENGTH),
    (climate.SOIL_WAVES, climate.SOIL_STRENGTH),
    (climate.GRASS_WAVES, climate.GRASS_STRENGTH),
    (climate.DUST_WAVES, climate.DUST_STRENGTH),
]
LATITUDE, LONGITUDE = st.floats(-89.9, 89.9), st.floats(-180, 180)


@pytest.mark.parametrize(("waves", "strength"), TINTS)
def test_bedrock_is_bounded_and_differs_over_the_globe(waves: climate.Waves, strength: float) -> None:
    points = [(lat, lon) for lat in range(-85, 90, 10) for lon in range(-180, 180, 10)]
    tints = np.array([climate.bedrock_tint(lat, lon, waves, strength) for lat, lon in points])
    assert np.abs(tints).max() <= 1.15 * strength
    assert (np.ptp(tints, axis=0) > 0.5 * strength).all()
    assert np.allclose(
        2 * tints, [climate.bedrock_tint(lat, lon, waves, 2 * strength) for lat, lon in points]
    )


@settings(deadline=None)
@given(lat=LATITUDE, lon=LONGITUDE, north=st.floats(-0.1, 0.1), east=st.floats(-0.1, 0.1))
def test_small_steps_change_bedrock_little(lat: float, lon: float, north: float, east: float) -> None:
    for waves, strength in TINTS:
        here = np.array(climate.bedrock_tint(lat, lon, waves, strength))
        there = np.array(climate.bedrock_tint(lat + north, lon + east, waves, strength))
        assert (
            np.abs(here - there).max() <= 0.02 * strength
        )  # 0.14 degrees, of 90 from a tint to its opposite


@settings(deadline=None)
@given(lat=LATITUDE, beyond=st.floats(0, 180))
def test_bedrock_goes_on_over_the_date_line(lat: float, beyond: float) -> None:
    for waves, strength in TINTS:
        west = climate.bedrock_tint(lat, 180.0 + beyond, waves, strength)
        east = climate.bedrock_tint(lat, -180.0 + beyond, waves, strength)
        assert west == pytest.approx(east, abs=1e-9 * strength + 1e-9)
        pole = climate.bedrock_tint(90.0, beyond, waves, strength)
        assert pole == pytest.approx(climate.bedrock_tint(90.0, 0.0, waves, strength), abs=1e-9)
