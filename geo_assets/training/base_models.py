"""The base models of a profile: what adapters are trained on, and what they are measured against."""

from geo_assets.lineage.assets import GeoAsset, Stage
from geo_assets.training.hub_base_model import hub_base_model
from geo_assets.training.tiny_base_model import tiny_base_model

NAMES = ("base_model_4b", "base_model_2b")


def base_model_assets(stage: Stage) -> list[GeoAsset]:
    """The base models of a profile; the recorded profile trains nothing and has none."""
    profile = stage.settings.profile
    if profile == "recorded":
        return []
    return [tiny_base_model(name) if profile == "sandbox" else hub_base_model(name) for name in NAMES]
