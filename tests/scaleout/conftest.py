"""Puts the helpers of this folder and the doubles within reach; one S3 and one Postgres for all its tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "doubles"), str(HERE.parent / "env_assets")]

from aws_double import Aws, aws  # noqa: E402
from postgres_double import postgres, postgres_programs  # noqa: E402


@pytest.fixture(scope="session")
def cloud() -> Iterator[Aws]:
    """S3 and Secrets Manager on loopback."""
    with aws() as double:
        yield double


@pytest.fixture
def as_client(cloud: Aws, monkeypatch: pytest.MonkeyPatch) -> Aws:
    """The same, with this process and its children as clients of it."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in cloud.variables.items():
        monkeypatch.setenv(name, value)
    return cloud


@pytest.fixture(scope="session")
def database() -> Iterator[dict[str, str]]:
    """Variables of a real Postgres; the test is skipped, with the reason, where none is installed."""
    if postgres_programs() is None:
        pytest.skip("needs Postgres: install the package postgresql")
    with postgres() as variables:
        yield variables
