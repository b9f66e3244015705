"""Typed and pasted coordinates mean on the page what they mean to the environment's reader of guesses."""

from typing import Any

import pytest
from environment_lab import Server
from web_lab import Visitor

from env_service.parsing import ParsedGuess, parse_guess

PAIRS = """
48.8584, 2.2945
48.8584 2.2945
48.8584;2.2945
48.8584 / 2.2945
(48.8584, 2.2945)
[48.8584, 2.2945]
10, 20
-33.8568, 151.2153
−33.8568, 151.2153
+48.8584, +2.2945
.5, .25
1e1, 2.5e1
48,8584; 2,2945
48,8584 2,2945
48,8584, 2,2945
48.8584 N, 2.2945 E
48.8584N 2.2945W
48.8584° N, 2.2945° E
N48.8584 E2.2945
S 33.8568, E 151.2153
2.2945 E, 48.8584 N
E2.2945, N48.8584
33.8568 south, 151.2153 east
-33.8568 S, 70.5 W
48.8584 deg N 2.2945 deg E
48°51'30"N 2°17'40"E
48°51′30″ N, 2°17′40″ E
48° 51' 30.2" N, 2° 17' 40.2" W
48 51.500 N 002 17.667 E
N48°51.5 E2°17.7
48°51'N, 2°17'E
48°51' S 2°17' W
-48°51'30", 2°17'40"
48d51m30s N 2d17m40s E
lat 48.8584 lon 2.2945
Lat: 48.8584, Lon: -2.2945
latitude=48.8584 longitude=2.2945
lon: 2.2945, lat: 48.8584
lat: 48.8584 N, lon: 2.2945 W
{"lat": 48.8584, "lon": 2.2945}
{"latitude": 48.8584, "lng": -2.2945}
{"lng": "2.2945", "lat": "48.8584"}
{'lat': 48.8584, 'lon': 2.2945}
{"lat": "33°51'24.5\\" S", "lon": "70°40' W"}
{"lat": "33°51′24.5″ S", "lon": "70°40′ W"}
{"lat": "48\\u00b051'24\\"N", "lon": "2\\u00b021'07\\"E"}
{"lat": "S 33.9", "lon": "E 151.2"}
{"lat": "33 51 S", "lon": "151 12 E"}
{'lat': 'S 33.9', 'lon': 'W 70.6'}
{'lat': '33°51'S', 'lon': '70°40'W'}
{"country": "Chile", "lat": -33.45, "reasoning": "the plate {AB} :}", "lon": "70.66 W"}
{"lat": "48 51", "lon": "2 21"}
{"lat": "151.2 E", "lon": "33.9 S"}
lat: S 33.9, lon: W 70.6
lat: South 33.9, lon: West 70.6
Latitude (S): 33.9, Longitude (W): 70.6
Latitude: 33.9° (S), Longitude: 70.6° (W)
Latitude: 33°51'S, Longitude: 151°12'E
Latitude: 33°51'24"S, Longitude: 151°12'36"W
lat: -33°51'24", lon: -70°40'
lat: 33 51 24 S, lon: 151 12 36 E
lat: 33.9 degrees South, lon: 70.6 degrees West
lat 48 degrees 51 minutes S, lon 2 degrees 21 minutes W
lat: 33°61'S, lon: 151°12'E
lat: W 70.6, lon: S 33.9
lat: 48.85.3, lon: 2.29
South 33.9, West 70.6
S 33.9, 151.2
48°51.5, 2°21.5
33°54'00 S, 151°12' W
33d51m24s S, 151d12m36s W
33d51m24s, 151d12m36s
48°51'
<guess>48°51'</guess>
<guess>48.8584, 2.2945</guess>
<guess>{"lat": "33 51 S", "lon": "151 12 E"}</guess>
<guess>10 20</guess>
48 51
４８.８５８４，２.２９４５
48.8584, 200.5
95.5, 20.5
48 51, 2 17
48°75'N, 2°17'E
0x10, 0x20
48.85.3, 2.29
48.8584 N, 2.2945 S
2.2945 E, 48.8584 E
48.8584
somewhere in Paris
1 2 3 4 5
""".strip().splitlines()

FIELDS = [
    ("48.85 N", "2.35 E", (48.85, 2.35)),
    ("48°51", "2°21", (48.85, 2.35)),
    ("48°51'", "-2°21'", (48.85, -2.35)),
    ("48°51'36\"N", "2° 21' 36\" W", (48.86, -2.36)),
    ("48 51 N", "E 2 21", (48.85, 2.35)),
    ("48,85", "2,35", (48.85, 2.35)),
    ("48,85", "2.35", (48.85, 2.35)),
    ("48.85°", "2.35º", (48.85, 2.35)),
    ("−33.5", "70.5 west", (-33.5, -70.5)),
    ("33.5S", "W70.5", (-33.5, -70.5)),
    ("-33.5 S", "-70.5 W", (-33.5, -70.5)),
    ("-0°30'", "0", (-0.5, 0)),
    (" 90 ", "-180", (90, -180)),
    ("2.35 E", "48.85 N", (48.85, 2.35)),
    ("48.85, 2.35", "", (48.85, 2.35)),
    ("", "48.85 N 2.35 E", (48.85, 2.35)),
    ("1", "48.85, 2.35", (48.85, 2.35)),
    ("0x10", "20", None),
    ("16", "0b11", None),
    ("Infinity", "0", None),
    ("ten", "20", None),
    ("48.85.1", "2.35", None),
    ("48°61", "2°21", None),
    ("90.01", "0", None),
    ("0", "-180.5", None),
    ("1e3", "0", None),
    ("48.85 E", "2.35 E", None),
    ("48.85", "2.35 N", (2.35, 48.85)),
    ("48 51", "2 21", None),
    ("48 51", "2.35", None),
    ("48.85, 2.35", "10, 20", None),
    ("N 48.85 S", "2.35", None),
    ("48.85", "", None),
    ("", "", None),
]


@pytest.fixture
def page(visit: Any, server: Server) -> Any:
    """The page at play, with coordinates.js at hand."""
    visitor: Visitor = visit(server, query="?tasks=0")
    visitor.page.evaluate("import('/web/coordinates.js').then((it) => { window.read = it; })")
    return visitor


def test_a_pair_reads_as_the_environment_reads_it(page: Visitor) -> None:
    read = "(text) => window.read.readPair(text)"
    for text in PAIRS:
        known, found = parse_guess(text), page.page.evaluate(read, text)
        if isinstance(known, ParsedGuess):
            assert found is not None, text
            assert (found["lat"], found["lon"]) == pytest.approx((known.lat, known.lon), abs=1e-9), text
        else:
            assert found is None, (text, found, known)


def test_the_two_fields(page: Visitor) -> None:
    read = "([lat, lon]) => window.read.readPlace(lat, lon)"
    for lat, lon, wanted in FIELDS:
        found = page.page.evaluate(read, [lat, lon])
        place = found["place"] and (found["place"]["lat"], found["place"]["lon"])
        assert place == (wanted and pytest.approx(wanted, abs=1e-9)), (lat, lon, found)
        if lat and lon:
            assert any(found["bad"]) == (wanted is None), (lat, lon, found)


@pytest.mark.parametrize("text", ["48.85 N", "48°51", "48°51'00\"N", "48,85"])
def test_what_is_typed_is_what_is_sent(visit: Any, server: Server, text: str) -> None:
    visitor: Visitor = visit(server, query="?tasks=0")
    page = visitor.page
    visitor.begin()
    page.fill("#lat", "0x10")
    page.fill("#lon", "2°21'W")
    assert page.get_attribute("#lat", "aria-invalid") == "true" and page.is_disabled('[data-call="guess"]')
    assert "Latitude is -90 to 90" in visitor.text("#place-words")
    page.fill("#lat", text)
    assert page.get_attribute("#lat", "aria-invalid") == "false"
    assert visitor.text("#place-words") == "Candidate at 48.85° N, 2.35° W. Nothing is spent yet."
    page.click('[data-call="guess"]')
    visitor.settled("reveal")
    assert (visitor.steps[-1]["lat"], visitor.steps[-1]["lon"]) == pytest.approx((48.85, -2.35))


def test_a_pasted_pair_fills_both_fields(visit: Any, server: Server) -> None:
    visitor: Visitor = visit(server, query="?tasks=0")
    page = visitor.page
    visitor.begin()
    page.fill("#lat", "33°51'24\"S, 151°12'55\"E")
    assert visitor.text("#place-words").startswith("Candidate at 33.86° S, 151.22° E")
    page.locator("#lat").press("Tab")
    assert (page.input_value("#lat"), page.input_value("#lon")) == ("-33.856667", "151.215278")
    page.click('[data-call="guess"]')
    visitor.settled("reveal")
    assert visitor.steps == [{"op": "guess", "lat": -33.856667, "lon": 151.215278}]
