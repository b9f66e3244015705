"""The synthetic Earth's drives, and their coverage as tiles and entities."""

import math
from collections import Counter
from dataclasses import replace

import mapbox_vector_tile
import numpy as np
import pytest
from scipy.spatial import cKDTree

from env_service.geodesy import chord_to_km, haversine_km, unit_vectors
from env_service.geography import geography
from resources.mapillary_frames import Dropped, DropReason, UsableFrame, usable_frame
from resources.sandbox.coverage import WorldCatalogue
from resources.sandbox.earth.climate import sun_position
from resources.sandbox.quirks import frame_quirks, sequence_quirks
from resources.sandbox.world import World, WorldSequence, WorldSpec
from resources.vector_tiles import decode_sequences, lonlat_to_tile, tile_bounds

LINK = {"thumb_2048_url": "http://127.0.0.1/x.jpg"}


@pytest.fixture(scope="module")
def world() -> World:
    return World.build(WorldSpec())


@pytest.fixture(scope="module")
def catalogue(world: World) -> WorldCatalogue:
    return WorldCatalogue(world)


def panoramic(world: World) -> list[WorldSequence]:
    return [sequence for sequence in world.sequences if sequence.is_pano]


def test_the_same_seed_gives_the_same_world_and_another_another(world: World) -> None:
    again = World.build(WorldSpec())
    assert again.sequences == world.sequences
    assert [each.frames for each in again.sequences[::50]] == [each.frames for each in world.sequences[::50]]
    other = World.build(WorldSpec(seed=8, pano_sequences=20, perspective_sequences=5))
    assert not {each.sequence_id for each in other.sequences} & {each.sequence_id for each in world.sequences}


def test_drives_are_spread_like_volunteers_are(world: World) -> None:
    drives = panoramic(world)
    assert (len(drives), len(world.sequences)) == (520, 1000)
    countries = Counter(each.country_code for each in drives)
    assert len(countries) >= 60
    assert max(countries.values()) <= 0.15 * len(drives)
    found = [geography().country_by_code(each.country_code) for each in drives]
    continents = Counter(country.continent for country in found if country)
    assert continents.most_common(1)[0][0] == "Europe"
    assert continents["Europe"] >= 0.35 * len(drives)
    assert len(continents) == 6


def test_contributors_belong_to_one_region_and_share_the_work(world: World) -> None:
    homes: dict[int, set[str]] = {}
    for each in world.sequences:
        country = geography().country_by_code(each.country_code)
        assert country is not None
        homes.setdefault(each.creator_id, set()).add(country.subregion)
    assert all(len(regions) == 1 for regions in homes.values())
    busiest = Counter(each.creator_id for each in panoramic(world)).most_common(1)[0][1]
    assert busiest <= 0.1 * len(panoramic(world))


def test_frames_are_where_and_when_they_should_be(world: World) -> None:
    elsewhere, total = 0, 0
    for each in world.sequences[::5]:
        assert 2 <= len(each.frames) <= 60
        steps = np.diff([frame.s for frame in each.frames])
        assert steps.min() >= 2.99 and steps.max() <= 57.01
        for earlier, later in zip(each.frames, each.frames[1:], strict=False):
            apart = 1000 * haversine_km(earlier.lat, earlier.lon, later.lat, later.lon)
            assert apart <= later.s - earlier.s + 0.01
            assert later.captured_at_ms > earlier.captured_at_ms
        codes = geography().codes_at([f.lat for f in each.frames], [f.lon for f in each.frames])
        elsewhere += sum(code != each.country_code for code in codes)
        total += len(codes)
    assert elsewhere <= 0.01 * total


def test_ids_are_what_mapillary_would_give(world: World) -> None:
    ids = [image_id for each in world.sequences for image_id in each.image_ids]
    assert len(set(ids)) == len(ids) > 10_000
    assert min(ids) > 2**53 and max(ids) < 10**17
    assert sum(int(float(image_id)) != image_id for image_id in ids) > 0.5 * len(ids)
    assert all(len(each.sequence_id) == 22 and each.sequence_id.isalnum() for each in world.sequences)
    assert world.sequence_of(ids[5]) is world.sequence_of(str(ids[5])) is world.sequences[0]
    assert world.sequence_of(5) is None and world.sequence("nobody") is None


def test_some_drives_are_close_to_others(world: World) -> None:
    points = unit_vectors(
        np.array([each.lat for each in panoramic(world)]), np.array([each.lon for each in panoramic(world)])
    )
    chords, _ = cKDTree(points).query(points, k=2)
    near = [chord_to_km(float(chord)) < 1.0 for chord in chords[:, 1]]
    assert 0.2 < sum(near) / len(near) < 0.8


def test_pictures_are_taken_by_day_in_the_direction_of_travel(world: World) -> None:
    for each in world.sequences[::20]:
        scene = world.scene(each.image_ids[0])
        assert sun_position(scene.lat, scene.month, scene.hour)[1] > 0.0
        assert scene.country_code == each.country_code
        first, second = each.frames[0], each.frames[1]
        east = (second.lon - first.lon) * math.cos(math.radians(first.lat))
        travelled = math.degrees(math.atan2(east, second.lat - first.lat)) % 360.0
        assert abs((travelled - scene.heading_deg + 180.0) % 360.0 - 180.0) < 60.0
    with pytest.raises(KeyError):
        world.scene(12)


# --- coverage -------------------------------------------------------------------------------------------


def test_the_tiles_of_the_world_hold_every_drive(world: World, catalogue: WorldCatalogue) -> None:
    tiles = {
        lonlat_to_tile(frame.lon, frame.lat, 6) for each in world.sequences for frame in (each.frames[0],)
    }
    found: dict[str, tuple[str, bool, float, float]] = {}
    for tile in sorted(tiles):
        data = catalogue.tile(*tile)
        assert data is not None
        assert data == catalogue.tile(*tile)
        columns = decode_sequences(data, *tile)
        for row, name in enumerate(columns.id):
            place = (columns.image_id[row], columns.is_pano[row], columns.lat[row], columns.lon[row])
            found.setdefault(name, place)
    assert set(found) == {each.sequence_id for each in world.sequences}
    for each in world.sequences:
        image_id, is_pano, lat, lon = found[each.sequence_id]
        assert int(image_id) in each.image_ids and is_pano == each.is_pano
        # A pixel of a zoom 6 tile is 150 m; the tile may begin in the middle of a drive.
        assert haversine_km(lat, lon, each.lat, each.lon) < 0.4 + each.reach_m / 1000


def test_a_city_tile_has_points_and_reads_as_by_a_general_decoder(
    world: World, catalogue: WorldCatalogue
) -> None:
    frame = panoramic(world)[3].frames[0]
    tile = lonlat_to_tile(frame.lon, frame.lat, 14)
    data = catalogue.tile(*tile)
    assert data is not None
    layers = mapbox_vector_tile.decode(data)
    assert set(layers) == {"image", "sequence"}
    images = {feature["properties"]["id"]: feature for feature in layers["image"]["features"]}
    assert images[frame.image_id]["properties"]["sequence_id"] == panoramic(world)[3].sequence_id
    west, south, east, north = tile_bounds(*tile)
    assert set(catalogue.images_in((west, south, east, north))) == {str(name) for name in images}


def test_nothing_was_captured_on_the_open_sea(catalogue: WorldCatalogue) -> None:
    assert catalogue.tile(6, 0, 32) is None
    assert catalogue.tile(14, 8000, 8000) is None
    assert list(catalogue.images_in((-30.0, 30.0, -29.9, 30.1))) == []


def test_boxes_find_what_a_scan_finds(world: World, catalogue: WorldCatalogue) -> None:
    for each in panoramic(world)[::60]:
        middle = each.frames[len(each.frames) // 2]
        box = (middle.lon - 0.002, middle.lat - 0.001, middle.lon + 0.002, middle.lat + 0.001)
        scanned = {
            str(frame.image_id)
            for other in world.sequences
            for frame in other.frames
            if box[0] <= frame.lon <= box[2] and box[1] <= frame.lat <= box[3]
        }
        assert set(catalogue.images_in(box)) == scanned
        assert str(middle.image_id) in scanned


def test_a_drive_across_the_date_line_is_found_on_both_sides() -> None:
    made = World.build(WorldSpec(pano_sequences=1, perspective_sequences=0))
    for lon in (179.9995, -179.9995):
        drive = replace(made.sequences[0], lat=-16.8, lon=lon, country_code="FJ")
        world = World(
            made.spec,
            (drive,),
            {drive.sequence_id: drive},
            {i: (drive, n) for n, i in enumerate(drive.image_ids)},
        )
        catalogue = WorldCatalogue(world)
        found = {
            name for west in (-180.0, 179.0) for name in catalogue.images_in((west, -18.0, west + 1.0, -15.0))
        }
        assert found == {str(image_id) for image_id in drive.image_ids}
        sides = {tile for frame in drive.frames for tile in [lonlat_to_tile(frame.lon, frame.lat, 6)]}
        assert all(catalogue.tile(*tile) for tile in sides)


# --- quirks ---------------------------------------------------------------------------------------------


def test_about_nine_frames_in_ten_can_be_played(world: World, catalogue: WorldCatalogue) -> None:
    verdicts: Counter[str] = Counter()
    types: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    qualities: Counter[str] = Counter()
    for each in panoramic(world)[::2]:
        for image_id in map(str, each.image_ids):
            entity = catalogue.entity(image_id)
            if entity is None:
                verdicts["does not exist"] += 1
                continue
            verdict = usable_frame(
                {**entity, **(LINK if "2048" in catalogue.picture_sizes(image_id) else {})}
            )
            verdicts["playable" if isinstance(verdict, UsableFrame) else verdict.reason] += 1
            if isinstance(verdict, UsableFrame):
                types[verdict.camera_type] += 1
                sources[f"position {verdict.position_source}"] += 1
                sources[f"heading {verdict.compass_source}"] += 1
                qualities[str(verdict.quality_score and "stated")] += 1
                assert verdict.creator_username == each.creator_username
    total = sum(verdicts.values())
    assert 0.86 < verdicts["playable"] / total < 0.97
    expected = {DropReason.BROKEN_CLOCK, DropReason.NO_PICTURE, DropReason.NO_HEADING, "does not exist"}
    assert set(verdicts) == {"playable", *expected}
    assert set(types) == {"spherical", ""} and types[""] < 0.1 * types["spherical"]
    assert set(qualities) == {"stated", "None", "0.0"}
    assert min(sources.values()) > 0 and len(sources) == 4


def test_quirks_are_the_same_every_time_and_cover_every_kind() -> None:
    assert frame_quirks(7, "12", 90.0) == frame_quirks(7, "12", 90.0)
    drives = [sequence_quirks(7, str(n)) for n in range(2000)]
    assert {each.clock for each in drives} == {"good", "zero", "1970", "2002", "future"}
    assert {each.camera for each in drives} == {"stated", "none", "absent"}
    assert {repr(each.pano_flag) for each in drives} == {"True", "1", "'true'"}
    frames = [frame_quirks(7, str(n), 350.0) for n in range(2000)]
    assert any(each.changes.get("computed_compass_angle") == 710.0 for each in frames)
    assert any(each.changes.get("compass_angle") == -1 for each in frames)
    assert not all(each.original for each in frames)


def test_without_quirks_everything_can_be_played() -> None:
    plain = World.build(WorldSpec(pano_sequences=12, perspective_sequences=3, quirks=False))
    catalogue = WorldCatalogue(plain)
    for each in plain.sequences:
        for image_id in map(str, each.image_ids):
            entity = catalogue.entity(image_id)
            assert entity is not None and catalogue.picture_sizes(image_id) == {"2048", "original"}
            verdict = usable_frame({**entity, **LINK})
            assert isinstance(verdict, UsableFrame if each.is_pano else Dropped)
    assert catalogue.perspective_sequences() == sorted(
        each.sequence_id for each in plain.sequences if not each.is_pano
    )
