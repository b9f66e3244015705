"""Writing that looks like a script, drawn as strokes: no fonts beyond Pillow's own Latin letters are at hand.

The words mean nothing; what a reader can recognise is the script: hanging bars, loops, square blocks, strokes
joined to a line with dots. Every script is a small set of stroke recipes on a unit square, written as
"x,y x,y ..." polylines and "o x,y,r" circles.
"""

from __future__ import annotations

from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

from resources.sandbox.earth.chance import unit

_RECIPES: dict[str, tuple[str, ...]] = {
    "cyrillic": (
        "0,1 .1,.75 .35,0 .65,0 .75,.75;0,.75 .9,.75 .9,1",
        "0,0 .4,.5 0,1;.8,0 .4,.5 .8,1;.4,0 .4,1",
        "0,0 0,1 .7,0 .7,1",
        "0,1 .2,.9 .3,0 .8,0 .8,1",
        "o .4,.5,.35;.4,0 .4,1",
        "0,0 0,1 .9,1 .9,0;.45,0 .45,1",
        "0,1 0,0 .7,0 .7,1",
        ".7,1 .7,0 .2,0 0,.25 .2,.5 .7,.5;.3,.5 0,1",
        "0,1 0,0 .6,0",
        "0,0 0,1 .5,1 .6,.75 .5,.5 0,.5;.9,0 .9,1",
        "0,0 .35,.6;.75,0 .3,1 .05,1",
    ),
    "greek": (
        ".4,0 0,1 .8,1 .4,0",
        "0,0 .7,0 .35,.5 .7,1 0,1",
        "o .4,.45,.34;0,1 .25,1 .25,.8;.8,1 .55,1 .55,.8",
        "0,1 0,0 .7,0 .7,1",
        ".4,0 .4,1;0,.1 0,.5 .4,.65 .8,.5 .8,.1",
        "0,1 .4,0 .8,1",
        "o .4,.5,.38;.2,.5 .6,.5",
        "0,0 .7,0;.1,.5 .6,.5;0,1 .7,1",
        "0,1 0,0 .6,0",
        "o .4,.5,.36;.4,0 .4,1",
    ),
    "hebrew": (
        "0,.05 .6,.05 .6,1;.1,1 .1,.4",
        "0,0 .6,0 .6,1 0,1",
        ".1,0 .5,0 .5,1",
        "0,0 .7,0;.55,0 .55,1",
        "0,0 .7,1;.7,0 .5,.4;.1,1 .2,.6",
        "0,0 .1,.9 .7,.9 .7,0;.35,0 .35,.9",
        ".4,0 .4,.4",
        "0,0 .6,0 .6,1 0,1 0,0",
    ),
    "arabic": (
        "0,.7 .3,.7 .5,.5 .7,.7 1,.7;o .5,.9,.03",
        "0,.7 1,.7;.6,.7 .6,0",
        "0,.7 .3,.7 .3,.45 .5,.7 .6,.45 .7,.7 1,.7",
        "1,.7 .6,.7 .3,.9 .1,1 0,.95",
        "0,.7 .2,.7;o .5,.6,.16;.65,.7 1,.7",
        "0,.7 1,.7;o .4,.35,.03;o .6,.35,.03",
        "0,.4 .5,.3 .2,.7 1,.7;o .5,.95,.03",
    ),
    "nagari": (
        ".7,0 .7,1;.7,.4 .3,.3 .2,.55 .4,.7",
        ".5,0 .5,1;o .25,.5,.18;.5,.5 .8,.6 .8,.8",
        ".8,0 .8,1;.1,.2 .2,.6 .5,.6 .8,.6",
        ".5,0 .5,.35 .2,.45 .4,.65 .15,.85",
        ".8,0 .8,1;o .4,.5,.16;.4,.65 .6,.9",
        ".3,0 .3,.4 .6,.6 .5,.9 .2,.8",
    ),
    "bengali": (
        ".8,0 .8,1;.1,.3 .5,.2 .8,.6;.1,.3 .4,.8",
        ".1,.5 .5,.15 .9,.5 .5,.95 .1,.5",
        ".7,0 .7,1;.7,.9 .15,.6 .7,.25",
        ".2,0 .5,.5 .2,.9 .8,.7",
        ".8,0 .8,1;o .4,.7,.14;.4,.55 .2,.2",
    ),
    "sinhala": (
        "o .4,.55,.32;o .4,.55,.12",
        "o .3,.6,.25;.55,.6 .8,.4 .7,.15 .5,.2",
        "o .45,.6,.3;.15,.3 .5,.1 .8,.35",
        "o .3,.65,.2;o .7,.65,.2;.1,.4 .5,.15 .9,.4",
    ),
    "thai": (
        "o .15,.2,.1;.15,.3 .15,1 .7,1 .7,.1",
        "o .2,.85,.1;.2,.75 .2,.2 .45,.05 .7,.2 .7,1",
        "o .15,.15,.1;.2,.25 .4,1 .55,.4 .75,1 .75,.05",
        "o .6,.2,.1;.5,.1 .2,.2 .4,.5 .2,.7 .2,1 .7,1 .7,.4",
        "o .3,.9,.1;.2,.85 .2,.05",
        "o .2,.8,.1;.25,.7 .1,.35 .4,.05 .75,.3 .75,1;.5,-.15 .7,-.25",
    ),
    "khmer": (
        ".1,1 .1,.3 .25,.15 .4,.3 .4,1;.4,.9 .7,1 .7,.2;.6,.2 .75,0 .9,.15",
        ".1,.2 .3,.4 .1,.6 .1,1 .7,1 .7,.2;.2,.1 .5,0 .8,.1",
        "o .25,.7,.12;.35,.6 .7,.2 .7,1;.55,.05 .7,.12 .9,0",
        ".1,1 .1,.35 .7,.35 .7,1;.3,.35 .3,.9;.2,.15 .45,0 .8,.15",
    ),
    "lao": (
        "o .2,.2,.12;.2,.32 .25,.9 .6,.95 .75,.6 .7,.2",
        "o .25,.75,.14;.3,.6 .3,.15 .6,.1 .75,.4 .7,1",
        ".15,.2 .1,.8 .4,1 .7,.8 .7,.2;o .6,.15,.08",
        "o .4,.3,.16;.2,.5 .2,.9 .7,.9 .7,.5",
    ),
    "burmese": (
        "o .4,.55,.36",
        "o .4,.55,.36;.4,.2 .8,.2",
        "o .25,.6,.24;o .7,.6,.24",
        "o .4,.5,.3;.4,.8 .4,1.05 .7,1.05",
        "o .4,.55,.36;o .4,.55,.12",
    ),
    "ethiopic": (
        ".1,.1 .1,1;.1,.4 .6,.4 .6,1",
        "o .35,.25,.22;.35,.5 .35,1;.35,.8 .7,.8",
        "0,.1 .7,.1;.35,.1 .35,1;.1,1 .6,1",
        ".1,0 .1,.5 .6,.5 .6,0;.35,.5 .35,1",
        ".1,1 .35,.1 .6,1;.2,.6 .5,.6;.6,1 .8,.9",
        "o .3,.6,.2;.5,.1 .5,1;.5,.1 .8,.1",
    ),
    "georgian": (
        "o .4,.65,.28;.68,.65 .6,.1 .2,.1",
        ".1,.4 .1,.8 .4,1 .7,.8 .7,.4 .5,.3",
        "o .35,.7,.22;.35,.5 .6,.2 .7,.6 .7,1.1",
        ".1,.5 .3,.3 .4,.6 .5,.3 .7,.5 .7,.9 .4,1",
    ),
    "armenian": (
        ".1,0 .1,.8 .35,1 .6,.8 .6,0",
        ".1,1 .1,.2 .35,0 .6,.2 .6,1;.6,.6 .85,.6",
        ".1,0 .1,1;.1,.5 .5,.5 .6,.7 .6,1;.1,1 .8,1",
        ".1,.2 .35,0 .6,.2 .6,1.1;.1,.2 .1,.6 .6,.6",
    ),
    "hangul": (
        "o .3,.25,.18;.75,0 .75,1;.75,.4 .95,.4;.1,.65 .55,.65 .55,.95",
        ".1,.1 .55,.1 .5,.45;.75,0 .75,.55;.1,.65 .8,.65 .8,1 .1,1 .1,.65",
        ".1,.1 .1,.4 .5,.4;0,.55 .95,.55;.5,.55 .5,.7;o .45,.85,.14",
        ".1,.35 .35,.05 .6,.35;.8,0 .8,1;.55,.5 .8,.5;.1,.7 .5,.7 .5,.95 .1,.95 .1,.7",
        ".1,.05 .5,.05 .5,.45 .1,.45 .1,.05;.75,0 .75,.6;.75,.3 .95,.3;.15,.7 .8,.7 .8,1",
    ),
    "cjk": (
        "0,.15 1,.15;.5,0 .5,1;.1,.45 .9,.45;.5,.5 0,1;.5,.5 1,1",
        "0,0 0,1 1,1 1,0 0,0;.2,.35 .8,.35;.2,.65 .8,.65;.5,.2 .5,.8",
        ".2,0 .2,1;0,.3 .4,.3;.5,.1 1,.1;.75,.1 .75,1;.5,.5 1,.5;.5,.95 1,.95",
        "0,.2 1,.2;.3,0 .3,.4;.7,0 .7,.4;.1,.5 .9,.5 .9,1 .1,1 .1,.5;.1,.75 .9,.75",
        ".15,0 0,.4;.1,.25 .1,1;.4,.1 1,.1;.4,.4 .95,.4 .95,.7 .4,.7 .4,.4;.3,1 1,1;.7,.1 .7,1",
        "0,.1 1,.1;.5,.1 .2,.5 .9,.5;.5,.5 .5,1;.1,1 .9,1;.2,.7 .8,.7",
    ),
}
_KANA = (
    ".1,.2 .8,.15 .4,.5;.45,.4 .4,.8 .15,1",
    ".5,0 .1,.5;.4,.3 .4,1",
    "0,.2 .8,.2 .7,.7 .2,1",
    ".1,.1 .3,.3;.1,.6 .3,.9 .9,.3",
    ".2,0 .2,.9 .5,1 .9,.7",
    "0,.3 .9,.3;.5,0 .45,.6 .1,1",
    "o .5,.6,.28;.1,.25 .9,.25;.4,0 .4,.6",
)
BARRED = ("nagari", "bengali")
JOINED = ("arabic",)

_SYLLABLES: dict[str, str] = {
    "nordic": "vik dal berg sund nes fjell lund holm sand by",
    "finnic": "jarvi niemi koski saari maki la lahti vaara pelto kyla",
    "english": "ton ford ham wick bury mill ash wood stone field",
    "french": "ville saint mont beau clair font rive bois val sur",
    "dutch": "dorp berg veld kerk hoek broek wijk dam poort heide",
    "german": "heim dorf bach feld stein burg wald au hof brunn",
    "italian": "monte villa ponte rocca fonte santa colle vento lago terra",
    "spanish": "san villa rio alta mesa cruz palma santo loma pueblo",
    "iberian": "vila ponte nova porto campo santa cima ribeira monte sao",
    "slavic": "nov grad pol ska bor vac lip zal brod mir",
    "magyar": "kis nagy var hely falu kut szeg vasar haza telek",
    "vlach": "esti ani tei lung cal bra sov ului mare ploi",
    "baltic": "iai kal aug pils nieki ava sil vent mare elg",
    "turkic": "koy kara su tash ak dere oba yol bey kum",
    "greek": "polis nero mani kalo vouno ia thala pyrgos petra aki",
    "swahili": "ni mba ki tu ga ru nya ko wa mo",
    "african": "ba do ku ma ori abe ife ko dan ado",
    "hindi": "pur nagar bad ganj garh ram kot pali wara devi",
    "tai": "ban nakh ori buri non wang sak yama kawa ta",
    "viet": "an binh thanh long phu hoa my tan quang ninh",
    "malay": "kam pung su bukit raja jaya tan jung lama baru",
}


def place_name(tongue: str, *keys: int) -> str:
    """A made-up Latin place name that sounds like a language; the same keys give the same name."""
    parts = _SYLLABLES.get(tongue, _SYLLABLES["english"]).split()
    count = 2 if unit(*keys, 1) < 0.7 else 3
    word = "".join(parts[int(unit(*keys, 2, index) * len(parts))] for index in range(count))
    return word.capitalize()


@lru_cache(maxsize=8)
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


@lru_cache(maxsize=256)
def latin_text(text: str, height: int, ink: tuple[int, int, int]) -> Image.Image:
    """A transparent image `height` pixels high of ASCII text, as wide as it needs; not to be drawn on."""
    font = _font(int(height * 0.92))
    left, top, right, bottom = font.getbbox(text)
    image = Image.new("RGBA", (max(1, int(right - left) + 2), height), (*ink, 0))
    ImageDraw.Draw(image).text((1 - left, (height - (bottom + top)) / 2), text, (*ink, 255), font=font)
    return image


def script_text(script: str, letters: int, height: int, ink: tuple[int, int, int], *keys: int) -> Image.Image:
    """A transparent image of one word in a script drawn as strokes."""
    recipes = _RECIPES.get(script, _RECIPES["cjk"])
    cell = int(height * (0.82 if script in ("cjk", "kana", "hangul") else 0.62))
    image = Image.new("RGBA", (cell * letters + height // 4, height), (*ink, 0))
    pen = ImageDraw.Draw(image)
    stroke = max(2, round(height * 0.09))
    for index in range(letters):
        options: tuple[str, ...] = recipes
        if script == "kana" and unit(*keys, 3, index) < 0.55:
            options = _KANA
        recipe = options[int(unit(*keys, 4, index) * len(options))]
        step = cell if script in JOINED else int(cell * 0.84)
        _strokes(
            pen,
            recipe,
            (height // 8 + index * cell, int(height * 0.2)),
            (step, int(height * 0.6)),
            stroke,
            ink,
        )
    if script in BARRED:
        pen.line(
            [(height // 8, height // 5), (image.width - height // 8, height // 5)], (*ink, 255), width=stroke
        )
    return image


def _strokes(
    pen: ImageDraw.ImageDraw,
    recipe: str,
    corner: tuple[int, int],
    size: tuple[int, int],
    width: int,
    ink: tuple[int, int, int],
) -> None:
    for part in recipe.split(";"):
        if part.startswith("o "):
            x, y, radius = (float(value) for value in part[2:].split(","))
            cx, cy, r = corner[0] + x * size[0], corner[1] + y * size[1], radius * size[1]
            pen.ellipse([cx - r, cy - r, cx + r, cy + r], outline=(*ink, 255), width=width)
            continue
        pairs = [pair.split(",") for pair in part.split()]
        line = [(corner[0] + float(x) * size[0], corner[1] + float(y) * size[1]) for x, y in pairs]
        pen.line(line, (*ink, 255), width=width, joint="curve")
