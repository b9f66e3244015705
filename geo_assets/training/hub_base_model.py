"""A model of the Hub as it is before training: what adapters are trained on, and measured against.

**What.** One look at the Hub. The data version is the commit of the pinned revision; nothing is downloaded.

**Why.** An adapter belongs to one base at one commit: another commit makes its adapters and their sweeps
stale, and those of the other base are left alone.

**Cost.** One request.
"""

from geo_assets.lineage.assets import GeoAsset, Made, StageRun, geo_asset
from resources.hub import hub_token, observe_model
from resources.sandbox.vlm.specs import BaseModelSpec


def hub_base_model(name: str) -> GeoAsset:
    """The asset of one base model of the Hub, by the name of its spec among the stage specs."""

    @geo_asset(
        name=name,
        group="training",
        spec=lambda specs: [getattr(specs, name).repo, getattr(specs, name).revision],
        kinds={"huggingface"},
    )
    def base_model(run: StageRun) -> Made:
        return observe(getattr(run.specs, name))

    return base_model


def observe(spec: BaseModelSpec) -> Made:
    """What the Hub says of a model at its revision.

    Raises:
        HubError: it has no such model or revision, or does not answer.
    """
    model = observe_model(spec.repo, spec.revision, token=hub_token())
    facts = {
        "repo": model.repo,
        "revision": model.commit,
        "asked_for": spec.revision,
        "architecture": model.architecture,
        "files": len(model.files),
        "gated": model.gated,
        "last_modified": model.last_modified,
    }
    return Made(model.commit, facts)
