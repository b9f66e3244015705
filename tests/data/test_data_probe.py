"""Sources are judged by what was measured, and what could not be reached is said so."""

from pathlib import Path

import pytest
from data_lab import SMALL, Chain, compute, settings_for
from pydantic import SecretStr

from env_service.errors import GeoError
from geo_assets.config.settings import ProbeSpec
from geo_assets.data._source import open_mapillary, source_version
from geo_assets.data.data_source_probe import NOT_PROBED, Sample, data_source_probe, probe, verdicts, wilson
from geo_assets.lineage.assets import AssetFolder, Stage
from resources.mapillary import MapillaryClient


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 40, 0.0, 0.0876), (40, 40, 0.9124, 1.0), (7, 45, 0.0775, 0.2878), (1, 2, 0.0945, 0.9055)],
)
def test_wilson_interval(successes: int, trials: int, low: float, high: float) -> None:
    assert wilson(successes, trials, 0.95) == pytest.approx((low, high), abs=5e-5)


def test_a_source_out_of_reach_is_not_probed() -> None:
    with MapillaryClient("http://127.0.0.1:9", "http://127.0.0.1:9", "MLY|x", attempts=1) as client:
        sample = probe(client, ProbeSpec(), lambda: ["a", "b"])
    assert sample.answered == 0 and sample.why_not
    row = verdicts(sample, Sample(3, 40), ProbeSpec())[0]
    assert row.spherical_share == NOT_PROBED and row.spherical is None
    assert "not probed" in row.verdict


def test_the_verdicts_follow_the_figures() -> None:
    osv, street, mapillary = verdicts(Sample(0, 40), Sample(9, 40), ProbeSpec())
    assert osv.spherical_share.startswith("0 of 40 (0.0% to 8.8%)") and osv.verdict.startswith("No")
    assert not street.may_cache and street.spherical_share == NOT_PROBED
    assert mapillary.verdict.startswith("Yes") and mapillary.can_look == "yes"


def test_the_sandbox_is_probed_through_the_client(chain: Chain) -> None:
    built = AssetFolder(chain.stage.settings.home, "data_source_probe").built()
    assert built is not None
    assert built.facts["osv5m_spherical"] == 0 and built.facts["osv5m_probed"] >= 30
    assert 0 < built.facts["mapillary_spherical"] < built.facts["mapillary_probed"]


def test_live_without_a_token_names_the_variable(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, profile="live")
    with pytest.raises(GeoError, match="MAPILLARY_ACCESS_TOKEN is not set"):
        compute(data_source_probe, Stage(settings, SMALL))


def test_a_planted_token_is_in_no_error(tmp_path: Path) -> None:
    token = SecretStr("MLY|planted|53cr37")
    settings = settings_for(
        tmp_path,
        "live",
        mapillary_token=token,
        graph_url="http://127.0.0.1:9",
        tiles_url="http://127.0.0.1:9",
    )
    with open_mapillary(Stage(settings, SMALL)) as client:
        assert "53cr37" not in repr(client)
    assert "53cr37" not in repr(settings)


def test_a_recorded_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    stage = Stage(settings_for(tmp_path, profile="recorded", recorded_dir=tmp_path / "nothing"), SMALL)
    with (
        pytest.raises(GeoError, match=r"nothing holds no frames\.parquet.*GEO_RECORDED"),
        open_mapillary(stage),
    ):
        pass


def test_two_worlds_are_two_sources(tmp_path: Path) -> None:
    from dataclasses import replace

    one = Stage(settings_for(tmp_path), SMALL)
    two = Stage(settings_for(tmp_path), replace(SMALL, world=replace(SMALL.world, seed=12)))
    assert source_version(one) != source_version(two)


@pytest.mark.parametrize("value", ["0", "-3", "many", "nan"])
def test_a_pace_that_is_no_number_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from geo_assets.data._source import workers

    monkeypatch.setenv("GEO_WORKERS", value)
    with pytest.raises(GeoError, match="GEO_WORKERS"):
        workers()
