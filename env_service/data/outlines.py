"""Outlines to draw and to test land with, out of TopoJSON files of Natural Earth; a part of `build_vendored`.

TopoJSON (format 1.0) keeps lines once, as arcs of whole-number differences that rings refer to by number.
Lines that cross 180 degrees jump to the other side there, and Antarctica's ring goes once around the earth:
both are mended here, so that whoever draws need not know.
"""

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

UNITS_PER_DEGREE = 10_000
ISLAND_TOLERANCE_DEG = 0.02

Json = dict[str, Any]


def build_outlines(topology: Json, islands: Json | None, code_of_number: dict[str, str]) -> bytes:
    """Lines of a TopoJSON as flat arrays: `<kind>_deltas` (n, 2) int32 and `<kind>_starts`.

    Kinds: "country" (outer rings), "land" (all rings; `land_polygons` says which belong together, the outer
    one first), both cut at 180 degrees; "coast" and "border" (arcs of one and of two countries, running on
    past 180 degrees where they cross it), "island" (outer rings of land in the finer topology `islands` that
    the coarse one leaves out, simplified).
    Points are counted in 1/10000 degree and stored as differences, which compress to a third.
    """
    arcs = _arcs(topology)
    users: dict[int, set[int]] = defaultdict(set)
    lines: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
    codes, labels = [], {}
    for number, geometry in enumerate(topology["objects"]["countries"]["geometries"]):
        code = code_of_number.get(str(geometry.get("id", "")).zfill(3), "")
        whole = [_polygon(rings, arcs) for rings in _polygons(geometry)]
        outer = [np.array(part.exterior.coords) for polygon in whole for part in _within_180(polygon)]
        lines["country"] += outer
        codes += [code] * len(outer)
        labels[code] = _label(whole)
        for polygon in _polygons(geometry):
            for arc in (arc for ring in polygon for arc in ring):
                users[arc if arc >= 0 else ~arc].add(number)
    land = [part for rings in _land(topology) for part in _within_180(_polygon(rings, arcs))]
    rings_of_land = [[part.exterior, *part.interiors] for part in land]
    lines["land"] = [np.array(ring.coords) for rings in rings_of_land for ring in rings]
    for arc in sorted(users):
        lines["coast" if len(users[arc]) == 1 else "border"] += _without_cut(_unwrapped(arcs[arc]))
    if islands is not None:
        lines["island"] = _islands(islands, land)
    arrays: dict[str, NDArray[Any]] = {
        "country_codes": np.array(codes, dtype="U2"),
        "land_polygons": np.repeat(np.arange(len(land)), [len(r) for r in rings_of_land]).astype(np.int32),
        "label_codes": np.array(sorted(filter(None, labels)), dtype="U2"),
        "labels": np.array([labels[code] for code in sorted(filter(None, labels))], dtype=np.float32),
    }
    for kind, parts in lines.items():
        units = np.round(np.concatenate(parts) * UNITS_PER_DEGREE).astype(np.int32)
        arrays[f"{kind}_deltas"] = np.diff(units, axis=0, prepend=np.zeros((1, 2), np.int32))
        arrays[f"{kind}_starts"] = np.cumsum([0, *(len(part) for part in parts)]).astype(np.int32)
    sink = io.BytesIO()
    np.savez_compressed(sink, allow_pickle=False, **arrays)
    return sink.getvalue()


def _label(outer: list[Any]) -> tuple[float, float, float]:
    """Longitude and latitude for a country's name, and the radius of free room around it, in degrees."""
    largest = max(outer, key=lambda polygon: float(polygon.area))
    circle = shapely.maximum_inscribed_circle(largest, 0.1)
    x, y = circle.coords[0]
    return float(x), float(y), float(circle.length)


def _unwrapped(line: NDArray[np.float64]) -> NDArray[np.float64]:
    """The line with longitudes that run on past 180 degrees where the source jumps to the other side."""
    turns = np.cumsum(np.round(np.diff(line[:, 0], prepend=line[0, 0]) / 360.0))
    return np.column_stack([line[:, 0] - 360.0 * turns, line[:, 1]])


def _polygon(rings: list[list[int]], arcs: list[NDArray[np.float64]]) -> Any:
    """Rings of arcs as a valid shape; a ring around the earth (Antarctica) is closed at the pole."""
    lines = [_unwrapped(_line(ring, arcs)) for ring in rings]
    # At 1:50 m Antarctica's first ring runs along the pole itself and its coast comes second.
    lines = [line for line in lines if line[:, 1].max() > -89.9]
    shapes = []
    for line in lines:
        if abs(line[-1, 0] - line[0, 0]) > 180.0:
            line = np.vstack([line, [line[-1, 0], -90.0], [line[0, 0], -90.0], line[:1]])
        shapes.append(shapely.make_valid(shapely.Polygon(line)))
    return shapely.difference(shapes[0], shapely.union_all(shapes[1:]))


def _within_180(shape_: Any) -> list[Any]:
    """The polygons of a shape, cut at 180 degrees and moved into -180..180."""
    parts = []
    for turn in (-360.0, 0.0, 360.0):
        moved = shapely.transform(shape_, lambda c, turn=turn: c + np.array([turn, 0.0]))
        cut = shapely.intersection(moved, shapely.box(-180.0, -90.0, 180.0, 90.0))
        # What only touches the cut leaves lines and points behind.
        for part in shapely.get_parts(cut).tolist():
            parts += [p for p in shapely.get_parts(part).tolist() if p.geom_type == "Polygon" and p.area > 0]
    return parts


def _without_cut(line: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Pieces of a line without the stretches along 180 degrees and along the south pole."""
    on_cut = (np.abs(line[:, 0]) > 179.99) | (line[:, 1] < -89.99)
    drawn = ~(on_cut[:-1] & on_cut[1:])
    pieces, start = [], 0
    for index in [*np.flatnonzero(~drawn).tolist(), len(line) - 1]:
        if index > start:
            pieces.append(line[start : index + 1])
        start = index + 1
    return pieces


def _islands(topology: Json, known: list[Any]) -> list[NDArray[np.float64]]:
    arcs = _arcs(topology)
    tree = shapely.STRtree(known)
    found = []
    for polygon in _land(topology):
        ring = _line(polygon[0], arcs)
        # The few islands on the 180th meridian itself are in the coarse outlines already.
        if len(ring) < 4 or np.ptp(ring[:, 0]) > 180.0:
            continue
        island = shapely.Polygon(ring)
        if not len(tree.query(island, predicate="intersects")):
            found.append(np.array(island.simplify(ISLAND_TOLERANCE_DEG).exterior.coords))
    return found


def _land(topology: Json) -> list[list[list[int]]]:
    return [
        polygon for geometry in topology["objects"]["land"]["geometries"] for polygon in _polygons(geometry)
    ]


def _arcs(topology: Json) -> list[NDArray[np.float64]]:
    """Arcs in degrees: delta-decoded, scaled and shifted as the TopoJSON 1.0 format says."""
    scale = np.array(topology["transform"]["scale"])
    translate = np.array(topology["transform"]["translate"])
    return [np.cumsum(np.array(arc), axis=0) * scale + translate for arc in topology["arcs"]]


def _polygons(geometry: Json) -> Iterator[list[list[int]]]:
    """Polygons of a TopoJSON geometry: lists of rings, the outer one first, as lists of arc numbers."""
    if geometry.get("type") == "GeometryCollection":
        for member in geometry["geometries"]:
            yield from _polygons(member)
    elif geometry.get("type") == "Polygon":
        yield geometry["arcs"]
    elif geometry.get("type") == "MultiPolygon":
        yield from geometry["arcs"]


def _line(ring: Iterable[int], arcs: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    pieces = [arcs[arc] if arc >= 0 else arcs[~arc][::-1] for arc in ring]
    # Neighbouring arcs share their joint.
    return np.concatenate([pieces[0], *(piece[1:] for piece in pieces[1:])])
