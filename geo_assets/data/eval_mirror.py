"""Which pictures the eval split shows, by hash.

**What.** `manifest.json`: image id to SHA-256 for the frames of `eval_split`, and for the originals of its
start frames. Nothing is copied; the pictures stay in the panorama store.

**Why.** A manifest per split keeps them apart: a change to the other split's imagery does not touch this one.

**Cost.** No request; one look at each picture, and its bytes hashed where that is cheap.
"""

from geo_assets.data._mirror_manifest import CHECK, split_mirror
from geo_assets.lineage.assets import CheckSpec, Made, StageRun, geo_asset


@geo_asset(
    group="data",
    deps=["eval_split"],
    kinds={"json"},
    checks=[CheckSpec(CHECK, "Every picture of the manifest is in the store and has its hash.")],
)
def eval_mirror(run: StageRun) -> Made:
    """The manifest of the eval split's pictures."""
    return split_mirror(run, "eval_split")
