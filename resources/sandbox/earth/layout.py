"""What stands along a road, slot by slot, the same from every frame of a drive.

Every kind of thing has slots at a fixed spacing along the road; counter-based chance decides what a slot
holds. Nothing here depends on where the camera is, except which slots are near enough to look at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from resources.sandbox.earth.camera import Camera
from resources.sandbox.earth.chance import unit_table
from resources.sandbox.earth.ground import SideRoad
from resources.sandbox.earth.relief import Relief
from resources.sandbox.earth.roadmap import RoadMap
from resources.sandbox.earth.roads import Road
from resources.sandbox.earth.style import Style
from resources.sandbox.earth.terrain import ground_height

Reals = NDArray[np.floating[Any]]

DRAWS = 8


@dataclass(frozen=True)
class Thing:
    """One object. `x`, `y`, `z` (foot) in metres from the lens; `heading` of the road there, radians; `side`
    +1 right or -1 left of the centreline; `draws` its own numbers in [0, 1)."""

    kind: str
    slot: int
    side: int
    offset: float
    x: float
    y: float
    z: float
    heading: float
    distance: float
    draws: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class Site:
    """A road, its surroundings and a camera: where slots become places."""

    road: Road
    relief: Relief
    road_map: RoadMap
    camera: Camera
    style: Style

    def slots(self, spacing: float, behind: float, ahead: float) -> NDArray[np.int64]:
        """Numbers of the slots whose positions lie from `behind` before to `ahead` beyond the camera."""
        first = math.ceil((self.camera.s - behind) / spacing)
        last = math.floor((self.camera.s + ahead) / spacing)
        return np.arange(first, last + 1, dtype=np.int64)

    def draws(self, salt: int, slots: NDArray[np.int64]) -> Reals:
        """A row of DRAWS numbers in [0, 1) per slot."""
        return unit_table(self.style.seed, salt, slots, DRAWS)

    def things(
        self,
        kind: str,
        slots: NDArray[np.int64],
        side: int,
        s: Reals,
        offset: Reals,
        draws: Reals,
    ) -> list[Thing]:
        """Things of one kind, standing on the ground at distances `s` and offsets (m, to the right)."""
        if len(s) == 0:
            return []
        at = self.road.sample(s)
        x = at.x + offset * np.cos(at.heading) - self.camera.x
        y = at.y - offset * np.sin(at.heading) - self.camera.y
        ground = ground_height(
            self.relief, self.road_map, self.road.half_width_m, x.astype(np.float32), y.astype(np.float32)
        )
        z = ground.astype(np.float64) - self.camera.z
        distance = np.hypot(x, y)
        return [
            Thing(
                kind, int(slots[i]), side, float(offset[i]), float(x[i]), float(y[i]), float(z[i]),
                float(at.heading[i]), float(distance[i]), tuple(draws[i].tolist()),
            )
            for i in range(len(s))
        ]  # fmt: skip


def side_roads(site: Site) -> list[SideRoad]:
    """Roads that join nearby."""
    if site.road.kind in ("highway", "track"):
        return []
    slots = site.slots(85.0, 330.0, 330.0)
    draws = site.draws(101, slots)
    share = 0.3 + 0.45 * site.style.urban
    return [
        SideRoad(85.0 * slot + 20.0 + 45.0 * row[1], 1 if row[2] < 0.5 else -1, 2.2 + 0.9 * row[3])
        for slot, row in zip(slots.tolist(), draws, strict=True)
        if row[0] < share
    ]


def lay_out(site: Site, joins: list[SideRoad]) -> list[Thing]:
    """Everything near the camera that stands up from the ground, in no order."""
    things: list[Thing] = []
    style = site.style
    for side in (-1, 1):
        open_here = _Gaps(joins, side)
        things += _woods(site, side, open_here)
        things += _houses(site, side, open_here)
        things += _trees(site, side, open_here)
        things += _fences(site, side, open_here)
        things += _people(site, side)
        things += _parked(site, side, open_here)
    things += _poles(site)
    things += _signs(site, joins)
    things += _traffic(site)
    if not style.kerbed and style.traits.post != "N" and not style.unpaved:
        things += _posts(site)
    return things


@dataclass(frozen=True)
class _Gaps:
    """Where a side of the road must stay open because another road joins."""

    joins: list[SideRoad]
    side: int

    def free(self, s: Reals, margin: float) -> NDArray[np.bool_]:
        clear = np.ones(len(s), dtype=bool)
        for join in self.joins:
            if join.side == self.side:
                clear &= np.abs(s - join.s) > join.half_width_m + margin
        return clear


def _kept(
    site: Site, kind: str, side: int, keep: NDArray[np.bool_], slots: NDArray[np.int64], s: Reals,
    offset: Reals, draws: Reals,
) -> list[Thing]:  # fmt: skip
    return site.things(kind, slots[keep], side, s[keep], side * offset[keep], draws[keep])


def _woods(site: Site, side: int, gaps: _Gaps) -> list[Thing]:
    style = site.style
    slots = site.slots(24.0, 230.0, 230.0)
    draws = site.draws(110 + side, slots)
    s = 24.0 * slots + 12.0
    stretch = site.draws(112 + side, slots // 5)  # woods and clearings last a hundred metres or so
    share = (
        max(0.05, 0.85 - 1.2 * style.climate.arid) * (1.0 - 0.75 * style.urban) * (style.climate.mean_c > -3)
    )
    keep = (stretch[:, 0] < share) & gaps.free(s, 11.0)
    offset = np.full(len(slots), style.half_width_m + 15.0) + 9.0 * stretch[:, 1]
    return _kept(site, "woods", side, keep, slots, s, offset, draws)


def _houses(site: Site, side: int, gaps: _Gaps) -> list[Thing]:
    style = site.style
    if style.kind == "highway" and style.urban < 0.6:
        return []
    spacing = 13.0 if style.urban > 0.55 else 19.0 if style.urban > 0.3 else 36.0
    slots = site.slots(spacing, 170.0, 190.0)
    draws = site.draws(120 + side, slots)
    s = spacing * slots + spacing / 2
    share = min(0.95, 0.36 + 0.75 * style.urban)
    keep = (draws[:, 0] < share) & gaps.free(s, spacing / 2 + 0.5)
    front = (
        style.half_width_m
        + (3.2 if style.kerbed else 5.0)
        + 9.0 * (1.0 - style.urban) ** 1.5 * (0.4 + 0.6 * draws[:, 1])
    )
    if style.kind == "highway":
        front = front + 12.0
    return _kept(site, "house", side, keep, slots, s, front, draws)


def _trees(site: Site, side: int, gaps: _Gaps) -> list[Thing]:
    style = site.style
    things: list[Thing] = []
    density = max(0.10, 0.62 - 0.55 * style.climate.arid)
    for row, (spacing, first, depth) in enumerate(((7.0, 3.6, 5.0), (9.0, 9.0, 14.0))):
        slots = site.slots(spacing, 140.0, 150.0)
        draws = site.draws(130 + 2 * row + side, slots)
        s = spacing * (slots + 0.8 * draws[:, 3])
        share = density * (1.0 - 0.7 * style.urban)
        if row == 0:
            share *= 0.7
            if style.kerbed:
                share = 0.16 + 0.2 * style.draw(63)
        keep = (draws[:, 0] < share) & gaps.free(s, 2.5)
        if row == 1 and style.urban > 0.45:
            keep &= False
        offset = style.half_width_m + first + depth * draws[:, 1]
        if row == 0 and style.kerbed:
            offset = np.full(len(slots), style.half_width_m + 1.0)
        things += _kept(site, "tree", side, keep, slots, s, offset, draws)
    return things


def _fences(site: Site, side: int, gaps: _Gaps) -> list[Thing]:
    style = site.style
    slots = site.slots(8.0, 110.0, 120.0)
    s = 8.0 * slots + 4.0
    draws = site.draws(140 + side, slots)
    stretch = site.draws(142 + side, slots // 7)
    things: list[Thing] = []
    if style.traits.fence != "none" and style.traits.fence != "rail":
        share = 0.55 - 0.25 * style.urban
        keep = (stretch[:, 0] < share) & gaps.free(s, 4.5)
        offset = np.full(len(slots), style.half_width_m + (3.1 if style.kerbed else 4.4))
        if style.kerbed:
            keep &= stretch[:, 2] < 0.4
        things += _kept(site, "fence", side, keep, slots, s, offset, draws)
    if not style.kerbed and style.kind != "track":
        curved = np.abs(site.road.sample(s).curvature) > 1.0 / 220.0
        alpine = style.climate.hills > 0.3 or style.traits.fence == "rail"
        keep = (
            (curved | (style.kind == "highway"))
            & (stretch[:, 3] < (0.8 if alpine else 0.3))
            & gaps.free(s, 5.0)
        )
        things += _kept(
            site, "rail", side, keep, slots, s, np.full(len(slots), style.half_width_m + 1.0), draws
        )
    return things


def _people(site: Site, side: int) -> list[Thing]:
    style = site.style
    if style.kind == "highway":
        return []
    slots = site.slots(9.0, 60.0, 70.0)
    draws = site.draws(150 + side, slots)
    s = 9.0 * (slots + 0.9 * draws[:, 3])
    keep = draws[:, 0] < 0.04 + 0.3 * style.urban
    # On the pavement, past the cars that are parked half on it.
    offset = style.half_width_m + 2.0 + 0.8 * draws[:, 1]
    return _kept(site, "person", side, keep, slots, s, offset, draws)


def _parked(site: Site, side: int, gaps: _Gaps) -> list[Thing]:
    style = site.style
    if style.kind == "highway":
        return []
    slots = site.slots(7.0, 70.0, 80.0)
    draws = site.draws(160 + side, slots)
    s = 7.0 * slots + 3.5
    keep = (draws[:, 0] < 0.03 + 0.38 * style.urban) & gaps.free(s, 4.0)
    offset = np.full(len(slots), style.half_width_m + (0.75 if style.kerbed else 1.5))
    return _kept(site, "parked", side, keep, slots, s, offset, draws)


def _poles(site: Site) -> list[Thing]:
    look, style = site.style.traits, site.style
    things: list[Thing] = []
    side = 1 if style.draw(64) < 0.5 else -1
    if look.pole != "none" and style.draw(65) < (0.95 if style.kind != "highway" else 0.3):
        spacing = look.pole_spacing_m
        slots = site.slots(spacing, 170.0, 230.0)
        draws = site.draws(170, slots)
        offset = np.full(len(slots), style.half_width_m + (0.6 if style.kerbed else 2.6))
        things += site.things("pole", slots, side, spacing * slots + 3.0, side * offset, draws)
    if style.kerbed or style.kind == "highway":
        slots = site.slots(32.0, 110.0, 130.0)
        offset = np.full(len(slots), style.half_width_m + (0.6 if style.kerbed else 1.8))
        things += site.things(
            "lamp", slots, -side, 32.0 * slots + 11.0, -side * offset, site.draws(171, slots)
        )
    return things


def _signs(site: Site, joins: list[SideRoad]) -> list[Thing]:
    """Traffic signs, and boards with small print; those of the oncoming lane show only to who looks back."""
    style = site.style
    own = -1 if style.traits.drives_left else 1
    things: list[Thing] = []
    for kind, spacing, salt, share, far_side in (
        ("sign", 34.0, 180, 0.75, 0.35),
        ("info", 20.0, 181, 0.95, 0.4),
    ):
        slots = site.slots(spacing, 75.0, 85.0)
        draws = site.draws(salt, slots)
        s = spacing * slots + 6.0 + 9.0 * draws[:, 2]
        for side in (-1, 1):
            here = (draws[:, 1] < far_side) == (side != own)
            keep = (draws[:, 0] < share) & here & _Gaps(joins, side).free(s, 1.5)
            offset = np.full(len(slots), style.half_width_m + (0.75 if style.kerbed else 1.7))
            if kind == "info":
                offset += 1.2
            things += _kept(site, kind, side, keep, slots, s, offset, draws)
    return things


def _traffic(site: Site) -> list[Thing]:
    """Moving cars: those of the own lane keep their distance, the others come towards the camera."""
    style, camera = site.style, site.camera
    along = 1 if math.cos(site.road.at(camera.s).heading_deg * math.pi / 180.0 - camera.heading) >= 0 else -1
    right_hand = -1 if style.traits.drives_left else 1
    things: list[Thing] = []
    share = 0.16 + 0.3 * style.urban + 0.2 * (style.kind == "highway") - 0.12 * (style.kind == "track")
    travelled = camera.s * along
    for direction in (along, -along):
        gap = 46.0
        closing = 0.0 if direction == along else 2.0 * travelled
        first = math.ceil((closing - 120.0) / gap)
        slots = np.arange(first, math.floor((closing + 140.0) / gap) + 1, dtype=np.int64)
        draws = site.draws(190 + direction, slots)
        ahead = gap * slots + 20.0 * draws[:, 3] - closing
        keep = (draws[:, 0] < share) & (np.abs(ahead) > 9.0)
        offset = np.full(len(slots), right_hand * direction * style.half_width_m * 0.48)
        chosen = ahead[keep]
        side = right_hand * direction
        kind = "car ahead" if direction == 1 else "car back"
        things += site.things(kind, slots[keep], side, camera.s + along * chosen, offset[keep], draws[keep])
    return things


def _posts(site: Site) -> list[Thing]:
    things: list[Thing] = []
    for side in (-1, 1):
        slots = site.slots(25.0, 100.0, 130.0)
        offset = np.full(len(slots), side * (site.style.half_width_m + 0.7))
        things += site.things("post", slots, side, 25.0 * slots + 14.0, offset, site.draws(200 + side, slots))
    return things
