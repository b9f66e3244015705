"""Imported by the fork server alone: what each step would otherwise import and parse again for itself.

A step is a process of its own. It is forked from a server that has imported the libraries and taken the code
versions already, so that it starts in a tenth of a second instead of two.
"""

from env_service.errors import GeoError
from geo_assets.definitions import build_definitions, load_stage

try:
    build_definitions(load_stage())
except GeoError:
    # The step says it better: it fails with this sentence where Dagster can show it.
    WARM = False
else:
    WARM = True
