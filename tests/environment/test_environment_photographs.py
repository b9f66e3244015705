"""Single photographs: every surface says where the picture looks and how much of it is shown."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from environment_lab import PARIS, SYDNEY, task_row, write_world

from env_service.environment import GeoGuessrEnvironment
from env_service.server.config import load_game, make_config
from env_service.server.mcp import build_mcp

Make = Callable[..., GeoGuessrEnvironment]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """An environment with one task whose frames have these compass angles, flat or not."""

    def build(imagery: str, angles: list[float], flat: list[bool]) -> GeoGuessrEnvironment:
        row = task_row(0, PARIS, len(angles))
        row["start_frame"] = 0
        for frame, angle, photo in zip(row["frames"], angles, flat, strict=True):
            frame.update(compass_angle=angle, is_pano=not photo)
        tasks, panos = write_world(tmp_path, [row])
        split = {"tasks": str(tasks), "panos": str(panos), "imagery": imagery}
        return GeoGuessrEnvironment(load_game(make_config({"splits": {"eval": split}, "view_px": 64})))

    return build


@pytest.mark.parametrize("imagery", ["perspective", "mapillary"])
def test_a_photograph_looks_where_its_camera_looked(make: Make, imagery: str) -> None:
    env = make(imagery, [135.0], [True])
    first = env.reset(index=0)
    assert first.heading_deg == 135.0 and "Facing SE (135°)" in first.feedback
    pinned = env.step({"op": "pin", "lat": 1, "lon": 2, "label": "x"})
    assert pinned.heading_deg == 135.0
    assert env.step({"op": "guess", "lat": 1, "lon": 2}).heading_deg == 135.0


def test_perspective_imagery_is_flat_whatever_the_row_says(make: Make) -> None:
    assert make("perspective", [135.0], [False]).reset(index=0).heading_deg == 135.0


def test_the_heading_of_a_photograph_identifies_no_row_of_a_list(make: Make) -> None:
    first = make("perspective", [359.71829], [True]).reset(index=0)
    assert first.heading_deg == 0.0 and "Facing N (0°)" in first.feedback
    assert "71829" not in first.model_dump_json()


def test_walking_from_photograph_to_photograph_turns_with_them(make: Make) -> None:
    env = make("mapillary", [135.0, 270.0, 10.0], [True, True, False])
    env.reset(index=0)
    walk = {"op": "move", "direction": "forward", "meters": 5}
    second = env.step(walk)
    assert second.heading_deg == 270.0 and "Facing W (270°)" in second.feedback
    # A panorama on the same drive is turned to where the camera looks, which nobody has turned.
    third = env.step(walk)
    assert third.heading_deg == 0.0 and "Facing N (0°)" in third.feedback


def test_the_field_of_view_said_is_the_one_shown(make: Make) -> None:
    env = make("perspective", [135.0], [True])
    whole = env.reset(index=0)

    def zoom(degrees: float) -> Any:
        return env.step({"op": "zoom", "fov_deg": degrees})

    wide = zoom(120)
    assert wide.image_base64 == whole.image_base64 and base64.b64decode(whole.image_base64)
    assert wide.fov_deg == 90.0 and "field of view 90°" in wide.feedback
    close = zoom(30)
    assert close.fov_deg == 30.0 and "Facing SE (135°), field of view 30°" in close.feedback


def test_mcp_promises_no_true_north_where_nothing_turns(tmp_path: Path, make: Make) -> None:
    from env_service.server.metrics import Metrics
    from env_service.server.sessions import Sessions

    def instructions(env: GeoGuessrEnvironment) -> str:
        limits = {"cap": 1, "idle_s": 1.0, "step_timeout_s": 1.0, "park_after_s": 1.0}
        sessions = Sessions(lambda: env, metrics=Metrics(), **limits)  # type: ignore[arg-type]
        app, _ = build_mcp(sessions, GeoGuessrEnvironment, env.game, "sequential")
        return str(app.state.fastmcp_server.instructions)

    assert "north" not in instructions(make("perspective", [135.0], [True]))
    row = task_row(0, SYDNEY, 1)
    tasks, panos = write_world(tmp_path / "panoramas", [row])
    split = {"tasks": str(tasks), "panos": str(panos)}
    around = GeoGuessrEnvironment(load_game(make_config({"splits": {"eval": split}})))
    assert "The first picture faces true north" in instructions(around)
