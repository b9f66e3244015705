"""Light on surfaces: sun or shade by the way they face, and haze by distance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from resources.sandbox.earth.palette import Colour
from resources.sandbox.earth.paste import Air
from resources.sandbox.earth.style import Style, haze_share

_AMBIENT = 0.70
_SUN = 0.46
_WALL_LEVEL = 170.0


@dataclass(frozen=True)
class Lighting:
    """The light of one drive."""

    style: Style

    def _air(self, sunlit: float, distance: float) -> Air:
        style = self.style
        strength = _SUN * style.direct * sunlit
        shade = _AMBIENT + 0.12 * (1.0 - style.direct)
        light: Colour = (
            shade * 0.98 + strength * style.sunlight[0] / 250.0,
            shade + strength * style.sunlight[1] / 250.0,
            shade * 1.03 + strength * style.sunlight[2] / 250.0,
        )
        haze = (style.horizon[0] * 0.95, style.horizon[1] * 0.95, style.horizon[2] * 0.95)
        # A few steps of haze are enough for the eye and let equal textures be shared.
        return Air(light, haze, round(haze_share(style, distance), 2))

    def facing(self, outward: float, distance: float) -> Air:
        """Light on an upright surface whose outward normal has an azimuth (radians)."""
        style = self.style
        lean = math.cos(outward - math.radians(style.sun_azimuth))
        return self._air(max(0.0, lean) * math.cos(math.radians(style.sun_elevation)) ** 0.5, distance)

    def wall(self, outward: float, distance: float) -> Air:
        """Light on the wall of a house, whose bricks and lime are of the local clay."""
        air = self.facing(outward, distance)
        red, green, blue = (1.0 + tint / _WALL_LEVEL for tint in self.style.climate.clay)
        return replace(air, light=(air.light[0] * red, air.light[1] * green, air.light[2] * blue))

    def level(self, distance: float) -> Air:
        """Light on a level surface."""
        return self._air(
            max(0.0, math.sin(math.radians(max(0.0, self.style.sun_elevation)))) ** 0.5, distance
        )

    def round(self, azimuth: float, distance: float) -> Air:
        """Light on something round seen in a direction: bright with the sun behind the camera."""
        lean = -math.cos(azimuth - math.radians(self.style.sun_azimuth))
        return self._air(0.55 + 0.45 * lean, distance)

    def lit_from_right(self, azimuth: float) -> bool:
        """Whether the sun stands to the right of a direction of view."""
        return math.sin(math.radians(self.style.sun_azimuth) - azimuth) > 0.0
