"""Guesses out of free text: every form, order of forms, and whatever else a model may write."""

import math
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_service.parsing import MAX_CHARACTERS, ParsedGuess, ParseFailure, parse_guess

SYDNEY = (-33.9, 151.2)
PARIS = (48.85, 2.35)

READ = [
    ("<guess>48.85, 2.35</guess>", PARIS, "guess_tag"),
    ("<GUESS> 48.85 2.35 </GUESS>", PARIS, "guess_tag"),
    ("<guess>48, 2</guess>", (48, 2), "guess_tag"),
    ("<guess>48.85, 2.35", PARIS, "guess_tag"),
    ('<guess>{"lat": 48.85, "lon": 2.35}</guess>', PARIS, "guess_tag"),
    ("<guess lat=\"48.85\" lon='2.35'/>", PARIS, "guess_tag"),
    ("<guess>33.9°S, 151.2°E</guess>", SYDNEY, "guess_tag"),
    ("<guess>lat, lon</guess> is the form. (48.85, 2.35)", PARIS, "decimal"),
    ("<guess>1, 2</guess> no: <guess>48.85, 2.35</guess>", PARIS, "guess_tag"),
    ('{"lat": 48.85, "lon": 2.35}', PARIS, "json"),
    (
        '```json\n{"country": "France", "guess": {"latitude": "48.85", "longitude": "2.35"},}\n```',
        PARIS,
        "json",
    ),
    ("{'lng': 2.35, 'lat': 48.85}", PARIS, "json"),
    ("Latitude: 48.85, Longitude: 2.35", PARIS, "labelled"),
    ("**Latitude:** 48.85° N\n**Longitude:** 2.35° E", PARIS, "labelled"),
    ("lat=-33.9 lon=151.2", SYDNEY, "labelled"),
    ("lon: 151.2, lat: 33.9 S", SYDNEY, "labelled"),
    ("a latitude of about -33.9 and a longitude of 151.2", SYDNEY, "labelled"),
    ("48°51'00\"N 2°21'00\"E", PARIS, "dms"),
    ("48° 51′ 0″ N, 2° 21′ 0″ E", PARIS, "dms"),
    ("2°21'E, 48°51'N", PARIS, "dms"),
    ("33°54'S 151°12'E", SYDNEY, "dms"),
    ("33.9°S, 151.2 E", SYDNEY, "hemisphere"),
    ("S33.9 E151.2", SYDNEY, "hemisphere"),
    ("33.9 South, 151.2 East", SYDNEY, "hemisphere"),
    ("151.2°E, 33.9°S", SYDNEY, "hemisphere"),
    ("33°S and 151°E", (-33, 151), "hemisphere"),
    ("I think (48.85, 2.35).", PARIS, "decimal"),
    ("−33.9, 151.2", SYDNEY, "decimal"),
    ("48,85; 2,35", PARIS, "decimal"),
    ("48, 2", (48, 2), "decimal"),
    ("Not 51.5, -0.12 but rather 48.85, 2.35", PARIS, "decimal"),
    ("Signs of 1998, 2004. Near 48.85, 2.35", PARIS, "decimal"),
    ("48.85, 2.35 between 1998, 2004", PARIS, "decimal"),
    ("48.85, 2.35; the years 1998.0, 2004.0", PARIS, "decimal"),
    ("in 2019, 48.85, 2.35", PARIS, "decimal"),
    ("lat 48.85 lon 2.35, or 10.5, 20.5", PARIS, "labelled"),
    # Latitude, longitude, zoom; and other runs of numbers.
    ("https://maps.google.com/@48.85,2.35,15z", PARIS, "decimal"),
    ("48.85,2.35,10z", PARIS, "decimal"),
    ("48.85, 2.35, 12.5", PARIS, "decimal"),
    ("48.85,2.35,10.5 90.5", PARIS, "decimal"),
    ("<guess>48.85, 2.35, 500</guess>", PARIS, "guess_tag"),
    ("<guess>48, 2, 10</guess>", (48, 2), "guess_tag"),
    ("10.5, 20.5\n48.85, 2.35", PARIS, "decimal"),
    ("10.5, 20.5, 48.85, 2.35", PARIS, "decimal"),
    ("confidence 0.9; 48.85, 2.35", PARIS, "decimal"),
    ("zoom 3.5\n48.85, 2.35", PARIS, "decimal"),
    ("12, 48.85, 2.35", PARIS, "decimal"),
    ("33.9 S, 151.2 E, 10.5 N", SYDNEY, "hemisphere"),
    ("lat -33.9 lon 151.2 lat 7", SYDNEY, "labelled"),
    # Decimal commas where a letter, a label or a key settles what they are.
    ("Coordinates: 48,85° N, 2,35° E", PARIS, "hemisphere"),
    ("N48,85 E2,35", PARIS, "hemisphere"),
    ("Latitude: -33,9, Longitude: 151,2", SYDNEY, "labelled"),
    ('{"lat": "48,85", "lon": "2,35"}', PARIS, "json"),
    ("48,85, 2,35", PARIS, "decimal"),
    ("48°51,0' N 2°21,0' E", PARIS, "dms"),
    # Decimal minutes without their mark.
    ("N48°51.0 E2°21.0", PARIS, "dms"),
    ("N 48° 51.000 E 002° 21.000", PARIS, "dms"),
    ("N48 51.0 E2 21.0", PARIS, "dms"),
    ("E2°21.0 N48°51.0", PARIS, "dms"),
    ("33°54.0 S, 151°12.0 E", SYDNEY, "dms"),
    ("33 54 00 S 151 12 00 E", SYDNEY, "dms"),
    # One letter for the two of them.
    ("-33.9°S, 151.2", SYDNEY, "decimal"),
    ("33.9 S, 151.2", SYDNEY, "decimal"),
    ("S33.9, 151.2", SYDNEY, "decimal"),
    ("151.2 E, -33.9", SYDNEY, "decimal"),
    ("-33.9, 151.2 East", SYDNEY, "decimal"),
    ("-33.9°S, 151.2°E", SYDNEY, "hemisphere"),
    # Keys and labels hold angles of every kind.
    ("""{"lat": "33°54'00.0\\" S", "lon": "151°12'\\u0020E"}""", SYDNEY, "json"),
    ("""{"lat": "48\\u00b051'00\\"N", "lon": "2\\u00b021'00\\"E"}""", PARIS, "json"),
    ('{"lat": "33°54′00″ S", "lon": "151°12′ E"}', SYDNEY, "json"),
    ('{"lat": "S 33.9", "lon": "E 151.2"}', SYDNEY, "json"),
    ("{'lat': 'S 33.9', 'lon': 'E 151.2'}", SYDNEY, "json"),
    ("""{'lat': '33°54'S', 'lon': '151°12'E',}""", SYDNEY, "json"),
    ('<guess>{"lat": "33 54 S", "lon": "151 12 E"}</guess>', SYDNEY, "guess_tag"),
    ("lat: S 33.9, lon: E 151.2", SYDNEY, "labelled"),
    ("lat: South 33.9, lon: East 151.2", SYDNEY, "labelled"),
    ("lat: s 33.9, lon: e 151.2", SYDNEY, "labelled"),
    ("Latitude (S): 33.9, Longitude (E): 151.2", SYDNEY, "labelled"),
    ("Latitude (degrees south): 33.9, longitude: 151.2", SYDNEY, "labelled"),
    ("lat: 33.9° (S), lon: 151.2° (E)", SYDNEY, "labelled"),
    ("Latitude: 33°54'S, Longitude: 151°12'E", SYDNEY, "labelled"),
    ("lat: -33°54'00\", lon: 151°12'", SYDNEY, "labelled"),
    ("lat 33 54 00 S, lon 151 12 00 E", SYDNEY, "labelled"),
    ("lat 33 degrees 54 minutes S, lon 151 degrees 12 minutes E", SYDNEY, "labelled"),
    ("Longitude: 151°12' E; latitude: 33°54' S", SYDNEY, "labelled"),
    # Words that only look like letters.
    ("latitude e 48.85, longitude e 2.35", PARIS, "labelled"),
    ("The latitude's 48.85 and the longitude's 2.35", PARIS, "labelled"),
    ("latitude just south of 48.85, longitude 2.35", PARIS, "labelled"),
    ("Latitude (N/S): -33.9, Longitude (E/W): 151.2", SYDNEY, "labelled"),
    ("lat: 48.85, lon: 2.35° 15 km away", PARIS, "labelled"),
    ("lat: 48, lon: 2° 15 km away", (48, 2), "labelled"),
    # Objects are read whole, whatever else they hold; torn ones by their keys and braces.
    ('{"lat": 48.85, "reasoning": "' + "x" * 9000 + '", "lon": 2.35}', PARIS, "json"),
    ("{'lat': 48.85, 'reasoning': '" + "x" * 9000 + "', 'lon': 2.35}", PARIS, "json"),
    ('{"lat": 48.85, "reasoning": "the plate {AB} :} {", "lon": 2.35}', PARIS, "json"),
    ("{'lat': 48.85, 'reasoning': 'the plate {AB}', 'lon': 2.35,}", PARIS, "json"),
    ('{"reasoning": "he said “hi”", "lat": 48.85, "zoom": {"lat": 1}, "lon": 2.35}', PARIS, "json"),
    ("{“lat”: 48.85, “lon”: 2.35}", PARIS, "json"),
    ('{"lat": 1, "lon": 2} no: {"lat": 48.85, "lon": 2.35,}', PARIS, "json"),
    ('{"lat": 1, "lon": 2,} no: {"lat": 48.85, "lon": 2.35}', PARIS, "json"),
    ('{"first": {"lat": 1, "lon": 2}, "last": {"lat": 48.85, "lon": 2.35}}', PARIS, "json"),
    ('{"lat": 48.85, "others": [{"lat": 1, "lon": 2}], "lon": 2.35}', PARIS, "json"),
    ("{" * 3000 + '"lat": 48.85, "lon": 2.35', PARIS, "json"),
    ('{"a":' * 9000 + '{"lat": 48.85, "lon": 2.35}' + "}" * 9000, PARIS, "json"),
    # Letters before the numbers, and minutes without their mark.
    ("S 33.9, 151.2", SYDNEY, "decimal"),
    ("South 33.9, East 151.2", SYDNEY, "hemisphere"),
    ("48°51.0, 2°21.0", PARIS, "dms"),
    ("<guess>48°51.0, 2°21.0</guess>", PARIS, "guess_tag"),
    ("33°54'00 S, 151°12' E", SYDNEY, "dms"),
    ("33d54m0s S, 151d12m0s E", SYDNEY, "dms"),
    # Other characters for the same thing.
    ("４８.８５, ２．３５", PARIS, "decimal"),
    ("＜guess＞４８.８５，２.３５＜／guess＞", PARIS, "guess_tag"),
    ("٤٨٫٨٥، ٢٫٣٥", PARIS, "decimal"),
    ("𝟒𝟖.𝟖𝟓, 𝟐.𝟑𝟓", PARIS, "decimal"),
]


@pytest.mark.parametrize(("text", "position", "how"), READ)
def test_reads(text, position, how):
    found = parse_guess(text)
    assert isinstance(found, ParsedGuess), found
    assert (found.lat, found.lon) == pytest.approx(position)
    assert found.how == how


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no coordinates"),
        ("Somewhere in France, 12, 15 cars in sight", "no coordinates"),
        ("built 1998, 2004", "no coordinates"),
        ("version 1.2.3, 4.5.6", "no coordinates"),
        ("<guess>91, 20</guess>", "latitude"),
        ("<guess>20, 181</guess> or 48.85, 2.35", "longitude"),
        ("latitude: 95.5, longitude: 20", "latitude"),
        ("48°71'N 2°21'E", "below 60"),
        ("1e400, 2.0", "latitude"),
        # The head of a longer number or angle is no angle.
        ("lat: 48.85.3, lon: 2.35", "no coordinates"),
        ("lat: 48°515, lon: 2°21", "no coordinates"),
        ('{"lat": "48 51", "lon": "2 21"}', "no coordinates"),
        ("<guess>48°51'</guess>", "no coordinates"),
        ("lat: 48°71'N, lon: 2°21'E", "below 60"),
        # Letters of the other axis, and values that are no angles.
        ("lat: W 70.6, lon: S 33.9", "no coordinates"),
        ('{"lat": "151.2 E", "lon": "33.9 S"}', "no coordinates"),
        ('{"lat": true, "lon": 2}', "no coordinates"),
        ('{"lat": NaN, "lon": 2}', "no coordinates"),
        ('{"lat": 1e400, "lon": 2}', "latitude inf"),
        ('{"lat": ' + "1" * 5000 + ', "lon": 2}', "latitude inf"),
        ("90.0000001, 0.0", "latitude 90.0000001 is outside"),
        ("95.5, 0.0", "latitude 95.5 is outside"),
        ("lat 0, lon -180.00000001", "longitude -180.00000001 is outside"),
        ("12.5 s, 34.5 s", "no coordinates"),
        ("48.85 e 2.35", "no coordinates"),
        ("48.85², 2.35", "no coordinates"),
        (None, "not text"),
        (48.85, "not text"),
        (b"48.85, 2.35", "not text"),
    ],
)
def test_refuses(text, reason):
    found = parse_guess(text)
    assert isinstance(found, ParseFailure), found
    assert reason in found.reason


@settings(max_examples=400, deadline=None)
@given(st.text())
def test_never_raises_and_never_leaves_the_globe(text):
    found = parse_guess(text)
    assert isinstance(found, ParseFailure) or (-90 <= found.lat <= 90 and -180 <= found.lon <= 180)


PIECES = st.sampled_from(
    ["(S)", "deg", "min", "s", "{\"", "\\",
    "<guess>", "</guess>", "<guess", "lat", "longitude", '"lat": ', ": ", ", ", "-", "°", "'", '"', "N",
    "W", "{",
     "}", "91", "48.85", "2.35", "1999", "1e309", "nan", "inf", ".", " ", "\n", "٣", "48,85",
     "N48", "S ", "1 ", "10z", ";", "\x00",
     "\ud800"]
)  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.lists(PIECES, max_size=30).map("".join))
def test_never_raises_on_broken_pieces_of_its_own_forms(text):
    found = parse_guess(text)
    assert isinstance(found, ParseFailure) or (math.isfinite(found.lat) and math.isfinite(found.lon))


@given(st.floats(-90, 90), st.floats(-180, 180))
def test_round_trips_through_every_form(lat, lon):
    lat, lon = round(lat, 5), round(lon, 5)
    ns, ew = "S" if lat < 0 else "N", "W" if lon < 0 else "E"
    for text in (
        f"<guess>{lat:.5f}, {lon:.5f}</guess>",
        f'{{"lat": {lat:.5f}, "lon": {lon:.5f}}}',
        f"lat {lat:.5f}, lon {lon:.5f}",
        f"{abs(lat):.5f}°{ns}, {abs(lon):.5f}°{ew}",
        f"It is at {lat:.5f}, {lon:.5f} then.",
    ):
        found = parse_guess(text)
        assert isinstance(found, ParsedGuess), text
        assert (found.lat, found.lon) == pytest.approx((lat, lon), abs=1e-9)


def test_a_long_reply_is_read_at_its_end():
    assert parse_guess("x " * 3_000_000 + "<guess>48.85, 2.35</guess>") == ParsedGuess(
        48.85, 2.35, "guess_tag"
    )


HOSTILE = ("<guess>", '"lat": ', "1.", "9" * 40, "lat 1 ", "{", "-", "1°1'", "1.5 N ", "N1 1 ", '{"', '{"a":',
           '{"a":[', '{"lat":1,"a":', '{"\\"', ' {"lat":"', '[{"lat":1,', '{"lat":1,"x":"' + "a" * 300,
           '"lat":1}', "lat (S) ", "latitude (south degrees ", "lat 1 lon ", "lat: 1°1'1 ", "1 1 ",
           "lat" + " " * 28, "lat 1 " + "x" * 59)  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_the_time_grows_with_the_text_and_no_faster(piece):
    def seconds(characters: int) -> float:
        text = (piece * characters)[:characters]
        began = time.process_time()
        assert isinstance(parse_guess(text), ParsedGuess | ParseFailure)
        return time.process_time() - began

    whole = MAX_CHARACTERS
    # The least of three: a first use and a loaded machine only add.
    quarter, full = (min(seconds(size) for _ in range(3)) for size in (whole // 4, whole))
    assert full < 8 * quarter + 0.5
