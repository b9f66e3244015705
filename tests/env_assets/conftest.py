"""Puts the helpers of this folder within reach, and builds one home for the tests that only read it."""

import sys
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from env_assets_lab import make_home

from geo_assets.environment.deployment_local import deployment_local
from geo_assets.environment.eval_environment import eval_environment
from geo_assets.environment.train_environment import train_environment
from geo_assets.lineage.assets import Stage


@dataclass(frozen=True)
class Built:
    """The environment assets as Dagster ran them."""

    stage: Stage
    instance: dg.DagsterInstance
    result: dg.ExecuteInProcessResult


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """All three environment assets, run by a real Dagster instance; the training split is empty."""
    stage = make_home(tmp_path_factory.mktemp("built") / "home", train_tasks=0)
    instance = dg.DagsterInstance.ephemeral()
    assets = [asset.definition(stage) for asset in (eval_environment, train_environment, deployment_local)]
    result = dg.materialize(assets, instance=instance)
    assert result.success
    return Built(stage, instance, result)
