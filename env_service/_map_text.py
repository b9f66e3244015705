"""Text for maps: cached stamps in Pillow's built-in face, and room that is already taken.

The built-in face (Aileron) has ASCII alone, so names are brought to ASCII first; a system font would draw
more and differ from machine to machine.
"""

import unicodedata
from dataclasses import dataclass, field
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

Color = tuple[int, int, int]
Box = tuple[int, int, int, int]

HALO_PX = 2
MAX_TEXT = 28

# Letters that Unicode does not take apart into a base letter and marks.
_LETTERS = str.maketrans(
    {
        "ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "ı": "i", "ß": "ss",
        "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "þ": "th", "Þ": "Th", "ə": "a", "Ə": "A", "’": "'",
        "‘": "'", "ʻ": "'", "ʼ": "'", "–": "-", "—": "-", "−": "-", "ħ": "h", "Ħ": "H", "ŋ": "n", "Ŋ": "N",
    }
)  # fmt: skip


def ascii_text(text: str, limit: int = MAX_TEXT) -> str:
    """The text in printable ASCII, at most `limit` characters; letters with no Latin form are left out."""
    # Far more than the limit is never looked at: a label may be megabytes long.
    decomposed = unicodedata.normalize("NFKD", text[: 8 * limit].translate(_LETTERS))
    plain = " ".join(
        "".join(c if " " <= c <= "~" else " " if c.isspace() else "" for c in decomposed).split()
    )
    return plain if len(plain) <= limit else f"{plain[: limit - 3].rstrip()}..."


@lru_cache(maxsize=32)
def _font(size: int) -> ImageFont.FreeTypeFont:
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise RuntimeError("Pillow was built without FreeType: install the wheel from the package index")
    return font


@lru_cache(maxsize=4096)
def stamp(text: str, size: int, color: Color, halo: Color | None) -> Image.Image:
    """The text as an RGBA picture cut to its ink, with a halo around it unless `halo` is None."""
    font = _font(size)
    edge = HALO_PX if halo is not None else 0
    left, top, right, bottom = font.getbbox(text, stroke_width=edge)
    width, height = max(1, int(right - left)), max(1, int(bottom - top))
    picture = Image.new("RGBA", (width, height), (*(halo or color), 0))
    draw = ImageDraw.Draw(picture)
    if halo is not None:
        draw.text((-left, -top), text, font=font, fill=halo, stroke_width=edge, stroke_fill=halo)
    draw.text((-left, -top), text, font=font, fill=color)
    return picture


@dataclass
class Page:
    """A picture on which text finds free room.

    Attributes:
        picture: what is drawn on, RGB.
        taken: boxes (left, top, right, bottom) that later text must keep clear of.
    """

    picture: Image.Image
    taken: list[Box] = field(default_factory=list)

    def is_free(self, box: Box, margin: int = 2) -> bool:
        """Whether a box lies inside the picture and clear of everything placed before."""
        left, top, right, bottom = box
        if left < 1 or top < 1 or right >= self.picture.width or bottom >= self.picture.height:
            return False
        return not any(
            left - margin < r and right + margin > x and top - margin < b and bottom + margin > y
            for x, y, r, b in self.taken
        )

    def place(self, text: Image.Image, spots: list[tuple[int, int]], force: bool = False) -> bool:
        """Paste at the first free of the given top left corners; with `force`, at the first if none is."""
        width, height = text.size
        for x, y in spots:
            box = (x, y, x + width, y + height)
            if self.is_free(box):
                break
        else:
            if not force:
                return False
            x, y = spots[0]
            box = (x, y, x + width, y + height)
        self.picture.paste(text, (x, y), text)
        self.taken.append(box)
        return True
