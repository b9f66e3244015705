"""Coverage tiles: which, how often asked, what is kept, and when too many failed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from conftest import SMALL, compute, settings_for

from env_service.errors import GeoError
from geo_assets.config.settings import TilesSpec
from geo_assets.data import coverage_tiles as stage_module
from geo_assets.data._image_layer import count_images
from geo_assets.data._rows import rows_version
from geo_assets.data._tile_log import TileLog, read_index, tile_path
from geo_assets.data.candidate_sequences import candidate_sequences, read_candidates
from geo_assets.data.coverage_tiles import CoverageIncomplete, coverage_tiles, land_tiles
from geo_assets.lineage.assets import AssetFolder, Stage
from resources.mapillary import MapillaryClient
from resources.vector_tiles import TileFeature, encode_tile
