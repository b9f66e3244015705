"""What a stand-in for Mapillary serves, whatever it is made of: a drawn world or a recorded folder."""

from collections.abc import Iterable
from typing import Any, Protocol

Entity = dict[str, Any]
Box = tuple[float, float, float, float]

PICTURE_FIELDS = {"thumb_2048_url": "2048", "thumb_original_url": "original"}
"""Graph fields that are signed links, and the picture size that each leads to."""

ENTITY_FIELDS = frozenset(
    {
        "altitude_accuracy",
        "camera_parameters",
        "camera_type",
        "captured_at",
        "compass_angle",
        "computed_altitude",
        "computed_compass_angle",
        "computed_geometry",
        "creator",
        "exif_orientation",
        "geometry",
        "height",
        "id",
        "is_pano",
        "make",
        "model",
        "quality_score",
        "sequence",
        "thumb_1024_url",
        "thumb_256_url",
        "width",
        *PICTURE_FIELDS,
    }
)
"""Fields that the graph knows; asking for another one is an error there and here."""


class Catalogue(Protocol):
    """Images, sequences and coverage. Ids are decimal strings; boxes are (west, south, east, north) degrees.

    All methods may be called from many threads.
    """

    def tile(self, z: int, x: int, y: int) -> bytes | None:
        """Coverage tile, or None where nothing was captured."""

    def image_ids(self, sequence_id: str) -> list[str]:
        """Images of a sequence in the order of the drive; [] where there is no such sequence."""

    def entity(self, image_id: str) -> Entity | None:
        """Every field of an image but its links, or None for an image that does not exist."""

    def picture_sizes(self, image_id: str) -> frozenset[str]:
        """The sizes ("2048", "original") that an image has a picture of."""

    def picture(self, image_id: str, size: str) -> bytes | None:
        """JPEG bytes, or None where there is no such picture."""

    def images_in(self, box: Box) -> Iterable[str]:
        """Ids of the images within a box."""

    def perspective_sequences(self) -> list[str]:
        """Ids of all sequences without panoramas, sorted: what a set of flat pictures would be made of."""
