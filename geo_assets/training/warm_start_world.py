"""The world of the sandbox's base models: places of their own, seen through the environment's views.

**What.** Eight views of each place, all around, and for some places the panorama and a task file, so that the
environment can be served over them.

**Why.** A base model must know how a street looks before it is trained on the project's tasks, and must not
have seen one of them: this world has another seed, other drives and other streets than the project's.

**Cost.** Two minutes of drawing on one core; a run that was interrupted goes on where it stopped.
"""

import dagster as dg
import numpy as np

from env_service.views import encode_jpeg
from geo_assets.data._maps import contact_sheet, picture
from geo_assets.lineage.assets import Made, StageRun, geo_asset
from geo_assets.lineage.fingerprint import code_version
from geo_assets.lineage.versions import content_version
from resources.sandbox.vlm.small_world import files_of, make, read

SHOWN = 12
DRAWN_BY = "resources.sandbox.vlm.small_world"


@geo_asset(group="training", spec=lambda specs: specs.small_world, kinds={"numpy"}, priority=10)
def warm_start_world(run: StageRun) -> Made:
    """Draw the small world."""
    folder, spec = run.folder().path, run.specs.small_world
    make(folder, spec, run.say, code_version([DRAWN_BY]))
    world = read(folder)
    step = max(1, len(world.codes) // SHOWN)
    shown = [encode_jpeg(np.ascontiguousarray(view)) for view in world.views[::step, 0][:SHOWN]]
    sheet = contact_sheet(shown, size=(160, 160))
    facts = {
        "places": len(world.codes),
        "countries": len(set(world.codes)),
        "played": spec.played,
        "view_px": spec.view_px,
    }
    metadata = {
        "dagster/row_count": dg.IntMetadataValue(len(world.codes)),
        **picture(sheet, "Views of the world on which base models are brought up, as they see them"),
    }
    return Made(content_version(files_of(folder)), facts, metadata)
