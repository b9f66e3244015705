"""The environment over the eval split, ready to be served: what every sweep plays.

**What.** `config.json` for `python -m env_service.server --config`. Its data version is its behaviour: the
code that an episode runs through, the task index, the imagery by hash, and the rules of play.

**Why.** A score belongs to a version of the environment. Whatever could alter one observation or reward
alters this version, and nothing else does: not the server, not the play page, not a comment. A new session
cap writes the configuration anew, under the same version.

**Cost.** Seconds: the service is started twice, played, filled to its cap, and every frame is hashed.
"""

from geo_assets.environment._behaviour import BEHAVIOUR, BEHAVIOUR_INPUTS
from geo_assets.environment._build import build_environment
from geo_assets.environment._readiness import CHECKS
from geo_assets.lineage.assets import Made, StageRun, geo_asset


@geo_asset(
    group="environment",
    deps=["eval_split", "eval_mirror"],
    spec=lambda specs: specs.environment,
    runs=BEHAVIOUR,
    inputs=BEHAVIOUR_INPUTS,
    kinds={"openenv"},
    checks=CHECKS,
)
def eval_environment(run: StageRun) -> Made:
    """Configure, check and describe the environment of the eval split."""
    return build_environment(run, "eval")
