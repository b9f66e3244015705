"""What an orphan cost is recorded after it was cancelled, once."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_hub import FakeHub
from test_sensors_orphans import Jobs

from geo_assets.lineage.budget import recorded_payments
from resources.compute import ASSET, HOME, PROJECT, PROJECT_NAME

IMAGE = "registry.example/geo@sha256:" + "ab" * 32


def test_a_rented_orphan_is_cancelled_and_paid_for_once(
    tmp_path: Path, budget: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    budget(1, 1, 1)
    folder = tmp_path / "hub"
    folder.mkdir()
    with FakeHub(folder) as hub:
        fast = {
            "GEO_JOB_POLL_S": "0.1",
            "GEO_JOB_PATIENCE_S": "5",
            "GEO_JOB_IMAGE": IMAGE,
            "GEO_COMPUTE": "hub",
        }
        for name, value in {**hub.environ, **fast}.items():
            monkeypatch.setenv(name, value)
        jobs = Jobs(tmp_path / "home")
        jobs.now = time.time()
        spec = {"command": ["sleep", "60"], "arguments": [], "environment": {}, "flavor": "a100-large"}
        labels = {PROJECT: PROJECT_NAME, HOME: jobs.home_label, ASSET: "adapter_run3"}
        job = hub.start({**spec, "labels": labels})
        while job.started is None:
            time.sleep(0.02)
        job.started -= 3600 - 30
        first = jobs.look(None, 0)
        assert recorded_payments(jobs.instance, 0.0) == []
        second = jobs.look(first.cursor, 11)
        assert job.stage == "CANCELED" and "cancelled after 11 minutes" in str(second.skip_reason)
        for _ in range(2):
            second = jobs.look(second.cursor, 1)
            (paid,) = recorded_payments(jobs.instance, 0.0)
            assert (paid.asset, paid.usd, paid.job) == ("adapter_run3", 2.5, job.id)
        jobs.instance.dispose()
