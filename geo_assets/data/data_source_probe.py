"""Three sources of street-level imagery, judged before anything is harvested.

**What.** One row per source: licence, whether it may be cached, how many of a sample of its sequences are
spherical (with a 95 % Wilson interval), whether one can look round and walk, and the verdict.

- **OSV-5M** is openly licensed and large, but sampled from perspective pictures, in which one cannot turn.
- **Google Street View** covers the world best; its terms forbid the bulk caching that training needs.
- **Mapillary** has sequences, spherical panoramas among the flat ones, and a licence that allows copies.

**Why.** A source that fails here wastes everything after it. The spherical share is measured through the same
client as the harvest; what cannot be reached is "not probed", never 0 %.

**Cost.** Two requests per sequence, some 160 in all. Live takes the OSV-5M sequence ids from the file (one id
a line) that `GEO_OSV5M_SEQUENCES` names.
"""

import io
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import requests

from env_service.canonical import atomic_write
from env_service.errors import GeoError, joined
from geo_assets.config.settings import ProbeSpec, TilesSpec
from geo_assets.data._maps import picture
from geo_assets.data._selection import draw
from geo_assets.data._source import open_mapillary, source_code, source_identity
from geo_assets.data._tables import row_count, table
from geo_assets.lineage.assets import Check, CheckSpec, Made, StageRun, geo_asset
from geo_assets.lineage.versions import content_version
from resources.mapillary import MapillaryClient, MapillaryError, NotFound
from resources.mapillary_frames import is_panoramic
from resources.vector_tiles import decode_sequences, lonlat_to_tile

NOT_PROBED = "not probed"
FILE = "sources.json"
OSV5M_ROUTE = "/datasets/osv5m/sequences"
SEED = 0

PLACES = (
    (2.35, 48.86), (-104.99, 39.74), (36.82, -1.29), (139.69, 35.68), (-46.63, -23.55),
    (9.172, 48.77), (103.81, 1.31),
)  # fmt: skip
"""Longitude and latitude of towns whose coverage tile the Mapillary sample is drawn from."""


@dataclass(frozen=True)
class Sample:
    """How many of the sequences that answered are spherical; `why_not` says why none was asked."""

    spherical: int = 0
    answered: int = 0
    why_not: str = ""


@dataclass(frozen=True)
class Source:
    """One row of the verdict table; `spherical_share` is words, the figures stand beside it."""

    source: str
    licence: str
    may_cache: bool
    spherical_share: str
    spherical: int | None
    probed: int | None
    low: float | None
    high: float | None
    can_look: str
    can_move: str
    verdict: str


@geo_asset(
    group="data",
    spec=lambda specs: {"probe": asdict(specs.probe), "zoom": specs.tiles.zoom},
    runs=source_code,
    extra=source_identity,
    kinds={"mapillary"},
    checks=[
        CheckSpec("usable_source_found", "A source that may be cached has spherical imagery.", blocking=False)
    ],
)
def data_source_probe(run: StageRun) -> Made:
    """Sample the sources and write the verdicts."""
    spec = run.specs.probe
    with open_mapillary(run.stage) as client:
        osv = probe(client, spec, lambda: osv5m_sequences(run, client, spec.sequences))
        mapillary = probe(client, spec, lambda: mapillary_sequences(client, spec, run.specs.tiles))
    rows = verdicts(osv, mapillary, spec)
    body = [asdict(row) for row in rows]
    atomic_write(run.folder().file(FILE), json.dumps(body, indent=1).encode() + b"\n")
    usable = [row.source for row in rows if row.may_cache and row.spherical]
    return Made(
        data_version=content_version(body),
        facts={
            "sources": len(rows),
            "osv5m_probed": osv.answered,
            "osv5m_spherical": osv.spherical,
            "mapillary_probed": mapillary.answered,
            "mapillary_spherical": mapillary.spherical,
        },
        metadata={
            **row_count(len(rows)),
            "verdicts": table(body),
            **picture(shares_chart(rows), "Share of spherical images per source, with its interval"),
            **{f"{name}_not_probed_because": why for name, why in _unreached(osv, mapillary)},
        },
        checks=[Check("usable_source_found", bool(usable), {"usable": ", ".join(usable) or "none"})],
    )


def probe(client: MapillaryClient, spec: ProbeSpec, sequences: Callable[[], Sequence[str]]) -> Sample:
    """Ask for one image of each sequence and count the spherical ones; a source out of reach is said so."""
    try:
        answers = [one_image(client, sequence) for sequence in list(sequences())[: spec.sequences]]
    except (MapillaryError, requests.RequestException, OSError) as error:
        said = joined(error.problem, error.fix) if isinstance(error, GeoError) else "it cannot be reached"
        return Sample(why_not=said)
    told = [answer for answer in answers if answer is not None]
    if not told:
        return Sample(why_not="none of its sequences answered")
    return Sample(sum(told), len(told))


def one_image(client: MapillaryClient, sequence_id: str) -> bool | None:
    """Whether the first image of a sequence is spherical; None where the sequence or image is gone."""
    ids = client.image_ids(sequence_id)
    if not ids:
        return None
    try:
        return is_panoramic(client.image(ids[0], ("id", "camera_type", "is_pano")))
    except NotFound:
        return None


def osv5m_sequences(run: StageRun, client: MapillaryClient, count: int) -> list[str]:
    """Sequence ids of OSV-5M: from the stand-in, or from the file that `GEO_OSV5M_SEQUENCES` names.

    Raises:
        OSError: there is no such file.
    """
    if run.settings.profile == "live":
        path = os.environ.get("GEO_OSV5M_SEQUENCES", "")
        if not path:
            raise FileNotFoundError("GEO_OSV5M_SEQUENCES is not set")
        ids = [line.strip() for line in Path(path).read_text().splitlines() if line.strip()]
        return sorted(ids, key=lambda name: draw(SEED, name))[:count]
    answer = requests.get(f"{client.base_url}{OSV5M_ROUTE}", params={"limit": count}, timeout=30)
    answer.raise_for_status()
    return _names(answer.json())


def mapillary_sequences(client: MapillaryClient, spec: ProbeSpec, tiles: TilesSpec) -> list[str]:
    """An even draw from the sequences of a few towns' coverage tiles."""
    found: set[str] = set()
    for lon, lat in PLACES:
        tile = lonlat_to_tile(lon, lat, tiles.zoom)
        found.update(decode_sequences(client.tile(*tile), *tile).id)
    return sorted(found, key=lambda name: draw(SEED, name))[: spec.sequences]


def verdicts(osv: Sample, mapillary: Sample, spec: ProbeSpec) -> list[Source]:
    """The table: what was measured, and what licence and terms say."""
    return [
        _row("OSV-5M", "CC BY-SA 4.0", True, osv, spec),
        Source(
            source="Google Street View",
            licence="Google Maps Platform terms",
            may_cache=False,
            spherical_share=NOT_PROBED,
            spherical=None,
            probed=None,
            low=None,
            high=None,
            can_look="yes",
            can_move="yes",
            verdict="No: its terms forbid the bulk caching that training needs; live use only",
        ),
        _row("Mapillary", "CC BY-SA 4.0", True, mapillary, spec),
    ]


def shares_chart(rows: Sequence[Source]) -> bytes:
    """One line per source: the share of spherical images and its interval, or that it was not probed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1 + 0.6 * len(rows)), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    for at, row in enumerate(rows):
        if row.spherical is None or row.probed is None or row.low is None or row.high is None:
            axes.text(0.01, at, NOT_PROBED, va="center", color="0.4")
            continue
        axes.plot([row.low, row.high], [at, at], color="tab:blue", linewidth=6, alpha=0.4)
        axes.plot([row.spherical / row.probed], [at], "o", color="tab:blue")
        axes.annotate(f"{row.spherical} of {row.probed}", (row.high, at), (6, 0), textcoords="offset points")
    axes.set_yticks(range(len(rows)), [row.source for row in rows])
    axes.set_xlim(0, 1.15)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("share of spherical images, 95 % interval")
    axes.spines[["top", "right"]].set_visible(False)
    sink = io.BytesIO()
    figure.savefig(sink, format="png")
    return sink.getvalue()


def wilson(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """Wilson's score interval of a share (E. B. Wilson, 1927), both ends in [0, 1]."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share, scale = successes / trials, 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def _row(source: str, licence: str, may_cache: bool, sample: Sample, spec: ProbeSpec) -> Source:
    if not sample.answered:
        return Source(
            source, licence, may_cache, NOT_PROBED, None, None, None, None, NOT_PROBED, NOT_PROBED,
            f"Open: not probed, {sample.why_not}",
        )  # fmt: skip
    low, high = wilson(sample.spherical, sample.answered, spec.confidence)
    share = f"{sample.spherical} of {sample.answered} ({low:.1%} to {high:.1%})"
    able = "yes" if sample.spherical else "no"
    verdict = (
        "Yes: spherical panoramas in sequences, and copies are allowed"
        if sample.spherical
        else "No: one cannot turn round in a perspective picture"
    )
    return Source(
        source=source,
        licence=licence,
        may_cache=may_cache,
        spherical_share=share,
        spherical=sample.spherical,
        probed=sample.answered,
        low=round(low, 6),
        high=round(high, 6),
        can_look=able,
        can_move=able,
        verdict=verdict,
    )


def _unreached(osv: Sample, mapillary: Sample) -> list[tuple[str, str]]:
    return [(name, s.why_not) for name, s in (("osv5m", osv), ("mapillary", mapillary)) if s.why_not]


def _names(answer: Any) -> list[str]:
    rows = answer.get("data") if isinstance(answer, dict) else None
    return [str(row["id"]) for row in rows] if isinstance(rows, list) else []
