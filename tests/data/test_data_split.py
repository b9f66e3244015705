"""The split: against brute force, as a property, and on the published positions."""

import csv
import itertools
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from env_service.geodesy import destination, haversine_km
from geo_assets.config.settings import SplitSpec
from geo_assets.data._positions import Positions, positions_of
from geo_assets.data._split import IN_BUFFER, NOT_READY, SEQUENCE_IN_EVAL, split
from geo_assets.data._split_rules import (
    broken_rules,
    closest_between,
    closest_within,
    measure,
    pairs_closer_than,
)
from geo_assets.data.task_split import why_empty


def _task(
    name: str,
    lat: float,
    lon: float,
    *,
    frames: int = 3,
    bearing: float = 45.0,
    sequence: str = "",
    creator: str = "c",
    country: str = "AA",
    quality: float | None = 0.5,
    ready: bool = True,
) -> dict[str, object]:
    places = [destination(lat, lon, bearing, 0.1 * step) for step in range(frames)]
    return {
        "task_id": name,
        "sequence_id": sequence or name,
        "country": country,
        "frames": [{"lat": where[0], "lon": where[1]} for where in places],
        "attribution": {"creator_id": creator},
        "meta": {"offline_ready": ready, **({} if quality is None else {"quality_score": quality})},
    }


def _pool(seed: int, count: int, spread_km: float) -> list[dict[str, object]]:
    """Tasks in clumps around a few places, the poles and the date line among them."""
    dice = np.random.default_rng(seed)
    hubs = [(48.8, 2.3), (-33.9, 151.2), (65.0, 179.995), (-16.8, -179.999), (89.99, 10.0), (0.0, 0.0)]
    rows = []
    for number in range(count):
        lat, lon = hubs[int(dice.integers(len(hubs)))]
        where = destination(lat, lon, float(dice.uniform(0, 360)), float(dice.exponential(spread_km)))
        rows.append(
            _task(
                f"pool-{number:05d}",
                *where,
                frames=int(dice.integers(2, 6)),
                bearing=float(dice.uniform(0, 360)),
                sequence=f"s{int(dice.integers(count))}",
                creator=f"c{int(dice.integers(9))}",
                country=f"C{int(dice.integers(12))}",
                quality=None if dice.random() < 0.2 else round(float(dice.random()), 1),
                ready=bool(dice.random() < 0.95),
            )
        )
    return rows


def _apart(one: dict[str, object], other: dict[str, object]) -> float:
    return min(
        haversine_km(a["lat"], a["lon"], b["lat"], b["lon"])  # type: ignore[index]
        for a, b in itertools.product(one["frames"], other["frames"])  # type: ignore[call-overload]
    )


def _by_brute_force(rows: list[dict[str, object]], spec: SplitSpec) -> tuple[list[int], list[int]]:
    """The rules as they read, every frame against every frame."""

    def preference(number: int) -> tuple[bool, float, str]:
        quality = rows[number]["meta"].get("quality_score")  # type: ignore[attr-defined]
        return quality is None, -(quality or 0.0), str(rows[number]["task_id"])

    ready = [n for n, row in enumerate(rows) if row["meta"]["offline_ready"]]  # type: ignore[index]
    chosen: list[int] = []
    for number in sorted(ready, key=preference):
        if len(chosen) == spec.eval_size:
            break
        same = sum(rows[other]["country"] == rows[number]["country"] for other in chosen)
        near = any(_apart(rows[number], rows[other]) < spec.eval_spacing_km for other in chosen)
        if same < spec.eval_per_country and not near:
            chosen.append(number)
    sequences = {rows[number]["sequence_id"] for number in chosen}
    train = [
        number
        for number in ready
        if number not in chosen
        and rows[number]["sequence_id"] not in sequences
        and all(_apart(rows[number], rows[other]) >= spec.buffer_km for other in chosen)
    ]
    return chosen, train


def _closest(rows: list[dict[str, object]], pairs: itertools.chain[tuple[int, int]]) -> float:
    return min((_apart(rows[a], rows[b]) for a, b in pairs), default=math.inf)


def test_a_pool_of_300_agrees_with_brute_force() -> None:
    rows = _pool(3, 300, 6.0)
    spec = SplitSpec(eval_size=40, eval_per_country=4)
    result = split(positions_of(rows), spec)
    chosen, train = _by_brute_force(rows, spec)
    assert result.eval == chosen
    assert result.train == train
    assert result.dropped[IN_BUFFER] > 0 and result.dropped[SEQUENCE_IN_EVAL] > 0
    assert len(chosen) + len(train) + sum(result.dropped.values()) == 300
    pool = positions_of(rows)
    figures = measure(pool.subset(chosen), pool.subset(train))
    assert broken_rules(figures, len(chosen), spec) == []
    assert figures.closest_train_eval is not None and figures.closest_eval_eval is not None
    crossing = _closest(rows, itertools.chain(itertools.product(chosen, train)))
    within = _closest(rows, itertools.chain(itertools.combinations(chosen, 2)))
    assert figures.closest_train_eval.km == pytest.approx(crossing, abs=1e-9)
    assert figures.closest_eval_eval.km == pytest.approx(within, abs=1e-9)
    assert figures.shared_sequences == 0
    creators = [{str(rows[n]["attribution"]["creator_id"]) for n in side} for side in (chosen, train)]  # type: ignore[index]
    assert figures.creators_in_both == len(creators[0] & creators[1])


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 100_000),
    count=st.integers(0, 40),
    spread=st.floats(0.1, 30.0),
    buffer_km=st.floats(0.05, 5.0),
    spacing=st.floats(0.05, 5.0),
    size=st.integers(1, 12),
    per_country=st.integers(1, 4),
)
def test_no_pool_breaks_a_rule(
    seed: int, count: int, spread: float, buffer_km: float, spacing: float, size: int, per_country: int
) -> None:
    rows = _pool(seed, count, spread)
    spec = SplitSpec(buffer_km, spacing, size, per_country)
    pool = positions_of(rows)
    result = split(pool, spec)
    assert (result.eval, result.train) == _by_brute_force(rows, spec)
    figures = measure(pool.subset(result.eval), pool.subset(result.train))
    assert broken_rules(figures, len(result.eval), spec) == []
    assert len(result.eval) + len(result.train) + sum(result.dropped.values()) == count


def test_one_frame_in_the_buffer_is_enough() -> None:
    rows = [
        _task("a", 10.0, 20.0, frames=2, bearing=0.0, quality=0.9),
        # Starts 1.5 km north and drives south: its last frame comes within the kilometre.
        _task("b", *destination(10.0, 20.0, 0.0, 1.5), frames=6, bearing=180.0, quality=None),
        _task("c", *destination(10.0, 20.0, 0.0, 1.5), frames=2, bearing=0.0, quality=None),
    ]
    result = split(positions_of(rows), SplitSpec(eval_size=1))
    assert result.eval == [0]
    assert result.train == [2]
    assert result.dropped == Counter({IN_BUFFER: 1})


def test_the_other_window_of_an_eval_sequence_is_not_trained_on() -> None:
    rows = [
        _task("a", 10.0, 20.0, sequence="s", quality=0.9),
        _task("b", 11.0, 20.0, sequence="s"),
        _task("c", 12.0, 20.0),
        _task("d", 13.0, 20.0, ready=False),
    ]
    result = split(positions_of(rows), SplitSpec(eval_size=1))
    assert (result.eval, result.train) == ([0], [2])
    assert result.dropped == Counter({SEQUENCE_IN_EVAL: 1, NOT_READY: 1})


def test_absent_quality_sorts_last_and_ties_go_by_id() -> None:
    rows = [
        _task("d", 0.0, 0.0, quality=None, country="A"),
        _task("c", 1.0, 0.0, quality=0.0, country="B"),
        _task("b", 2.0, 0.0, quality=0.7, country="C"),
        _task("a", 3.0, 0.0, quality=0.7, country="D"),
    ]
    assert split(positions_of(rows), SplitSpec()).eval == [3, 2, 1, 0]


def test_the_recheck_finds_what_is_broken() -> None:
    rows = [_task("a", 0.0, 179.9999, sequence="s"), _task("b", 0.0, -179.9999, sequence="s")]
    pool = positions_of(rows)
    figures = measure(pool.subset([0]), pool.subset([1]))
    said = broken_rules(figures, 1, SplitSpec())
    assert len(said) == 2
    assert "1 sequences are in both splits" in said[0]
    assert "separate a training frame from an eval frame, at least 1.0 are wanted" in said[1]
    both = broken_rules(measure(pool, pool.subset([])), 2, SplitSpec(eval_size=1, eval_per_country=1))
    assert [part.split()[-1] for part in both] == ["wanted"] * 3


def test_far_apart_tasks_still_have_a_closest_pair() -> None:
    pool = positions_of([_task("a", 80.0, 0.0, frames=1), _task("b", -80.0, 170.0, frames=1)])
    closest = closest_within(pool)
    assert closest is not None
    assert closest.km == pytest.approx(haversine_km(80.0, 0.0, -80.0, 170.0))
    assert closest_between(pool, pool.subset([])) is None


def test_an_empty_training_side_says_why() -> None:
    said = why_empty(2, [0, 1], Counter(), SplitSpec())
    assert said == "2 of 2 mirrored tasks went to eval, which takes up to 200 first"
    assert "3 dropped: within the buffer" in why_empty(5, [0, 1], Counter({IN_BUFFER: 3}), SplitSpec())


def test_the_faults_of_the_published_split_are_found(shared: Path) -> None:
    with (shared / "reference" / "published_eval_starts.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    lat, lon = ([float(row[name]) for row in rows] for name in ("lat", "lon"))
    pairs = pairs_closer_than(lat, lon, 1.0)
    assert {(first, second) for first, second, _ in pairs} == {(83, 176), (70, 155), (56, 82)}
    pool = positions_of(
        [_task(f"{n:03d}", lat[n], lon[n], frames=1, country=row["country"]) for n, row in enumerate(rows)]
    )
    figures = measure(pool, pool.subset([]))
    assert figures.closest_eval_eval is not None
    assert figures.closest_eval_eval.km == pytest.approx(min(km for _, _, km in pairs))
    ours = split(pool, SplitSpec())
    again = measure(pool.subset(ours.eval), pool.subset(ours.train))
    assert again.closest_eval_eval is not None and again.closest_eval_eval.km >= 1.0


def test_many_sequences_are_split_within_a_small_memory() -> None:
    count, frames = 20_000, 24
    dice = np.random.default_rng(5)
    lat = np.repeat(dice.uniform(-55, 70, count), frames) + np.tile(np.arange(frames) * 3e-5, count)
    lon = np.repeat(dice.uniform(-180, 180, count), frames)
    facts = positions_of([_task(f"t{n}", 0.0, 0.0, frames=0, country=f"C{n % 80}") for n in range(count)])
    pool = Positions(facts.tasks, lat, lon, np.arange(count + 1) * frames)
    result = split(pool, SplitSpec())
    figures = measure(pool.subset(result.eval), pool.subset(result.train))
    assert len(result.eval) == 200
    assert broken_rules(figures, 200, SplitSpec()) == []
