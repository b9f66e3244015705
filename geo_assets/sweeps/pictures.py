"""A recorded episode as one strip of pictures, for the sweep's page."""

import base64
import io
from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

from geo_assets.sweeps.replay import Step

TILE_PX = 160
CAPTION_PX = 22
INK, PAPER = (30, 30, 30), (250, 250, 248)
JPEG_QUALITY = 70


def strip(steps: Sequence[Step], columns: int = 6) -> bytes:
    """JPEG of an episode, left to right and top to bottom; calls without a picture show their name alone."""
    rows = -(-len(steps) // columns)
    width, height = min(columns, len(steps)) * TILE_PX, rows * (TILE_PX + CAPTION_PX)
    sheet = Image.new("RGB", (width, height), PAPER)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(size=13)
    for number, step in enumerate(steps):
        left, top = number % columns * TILE_PX, number // columns * (TILE_PX + CAPTION_PX)
        draw.text((left + 4, top + 3), f"{number}. {step.caption}", fill=INK, font=font)
        if step.picture:
            with Image.open(io.BytesIO(step.picture)) as picture:
                tile = picture.convert("RGB").resize((TILE_PX - 4, TILE_PX - 4), Image.Resampling.LANCZOS)
            sheet.paste(tile, (left + 2, top + CAPTION_PX))
    buffer = io.BytesIO()
    sheet.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()


def inline(picture: bytes, media: str, alt: str) -> str:
    """Markdown that carries the picture within itself."""
    return f"![{alt}](data:{media};base64,{base64.b64encode(picture).decode()})"
