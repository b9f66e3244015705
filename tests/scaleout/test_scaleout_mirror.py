"""Shards of the mirror in processes of their own onto one bucket, one killed: the same bytes, once each."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from aws_double import Aws
from scaleout_lab import MISSING, World, stage_of, start_shard, wait_for_lines, world

from geo_assets.data.mirrored_panoramas import finish, mirror_all, mirror_shard, plan, shard_log, verify
from geo_assets.lineage.assets import Made, Stage, StageRun

TASKS = 10
THREADS = 2
PACE = "900"
"""Requests a minute of the worker that is killed, so that there is a middle to kill it in."""
PUBLISHED = ("tasks.jsonl", "manifest.json")


def _run(stage: Stage) -> StageRun:
    return StageRun(stage, "mirrored_panoramas", lambda text: None)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("world"), TASKS) as served:
        yield served


@pytest.fixture(scope="module")
def calm(recorded: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    """The home of an undisturbed run into a local folder, and what came of it."""
    home = tmp_path_factory.mktemp("calm")
    made = mirror_all(_run(stage_of(recorded.home(home))))
    assert made.checks[0].passed and recorded.fetched().total() == recorded.pictures
    return home / "mirrored_panoramas", made


def test_a_killed_worker_loses_and_repeats_nothing(
    recorded: World, calm: tuple[Path, Made], as_client: Aws, tmp_path: Path
) -> None:
    undisturbed, expected = calm
    bucket = as_client.make_bucket()
    variables = recorded.home(tmp_path, f"s3://{bucket}/panos")
    run = _run(stage_of(variables))
    logs = run.folder().path / "verified"
    assert plan(run) == recorded.pictures + 1, "the one that does not exist is asked for too"

    killed = start_shard(variables, 0, GEO_WORKERS=str(THREADS), GEO_REQUESTS_PER_MINUTE=PACE)
    other = start_shard(variables, 1)
    wait_for_lines(logs / f"{shard_log(run, 0)}.jsonl", 5, killed)
    os.killpg(killed.pid, signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    said, fault = other.communicate(timeout=120)
    assert other.returncode == 0, fault
    # What the killed one had in hand may be in the bucket already, without a line in its log.
    left = plan(run)
    stored_then = as_client.objects(bucket, "panos/")
    believed = recorded.pictures + 1 - left
    assert int(said) < believed < recorded.pictures, "the kill fell into the middle"
    before = recorded.fetched()
    assert max(before.values()) == 1

    again = start_shard(variables, 0)
    said, fault = again.communicate(timeout=120)
    assert again.returncode == 0, fault
    assert int(said) == left, "what a log names is not asked for again"
    assert mirror_shard(run, 1) == 0
    made, after = finish(run), recorded.fetched()
    stored = as_client.objects(bucket, "panos/")
    assert set(before) | set(after) == {name.removesuffix(".jpg") for name in stored}
    assert len(set(before) & set(after)) <= THREADS and max(after.values()) == 1
    assert stored_then.items() <= stored.items(), "what was there is as it was"

    assert made.data_version == expected.data_version and made.facts == expected.facts
    for name in PUBLISHED:
        assert (run.folder().path / name).read_bytes() == (undisturbed / name).read_bytes()
    assert stored == {path.name: path.read_bytes() for path in (undisturbed / "store").iterdir()}
    assert verify(run).passed
    assert f"{MISSING}.jpg" not in stored and len(stored) == recorded.pictures
