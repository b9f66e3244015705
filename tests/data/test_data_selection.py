"""Order and caps: what is drawn does not depend on listing, on how many are fetched at once, or on kills."""

import random
import threading
from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from geo_assets.config.settings import PoolSpec
from geo_assets.data._selection import (
    COUNTRY_CAP,
    CREATOR_CAP,
    Candidate,
    Outcome,
    Picker,
    densities,
    draw,
    sampling_order,
)


def _row(country: str, creator: str, sequence: str) -> dict[str, object]:
    return {
        "country": country,
        "country_code": country,
        "sequence_id": sequence,
        "frames": [],
        "attribution": {"creator_id": creator},
    }


def _world(seed: int, count: int) -> tuple[list[Candidate], dict[str, Outcome]]:
    """Candidates over five countries and four creators; a third fail, some end up over the border."""
    dice = random.Random(seed)
    candidates, outcomes = [], {}
    for number in range(count):
        country, creator = dice.choice("ABCDE"), dice.choice(["x", "y", "z", ""])
        name = f"s{number:03d}"
        candidates.append(Candidate(name, "1", creator, None, ord(country), number))
        true_country = dice.choice("ABCDE") if dice.random() < 0.1 else country
        fails = dice.random() < 0.3
        rows = () if fails else (_row(true_country, creator or dice.choice("xyz"), name),)
        outcomes[name] = Outcome(name, rows, "failed" if fails else "")
    return candidates, outcomes


def _one_by_one(
    spec: PoolSpec, candidates: Sequence[Candidate], outcomes: dict[str, Outcome]
) -> tuple[list[str], list[str]]:
    """What the caps mean, written plainly: names looked at, names taken."""
    looked, taken = [], []
    near, true, creators = Counter[str](), Counter[str](), Counter[str]()
    for candidate in candidates:
        if len(taken) >= spec.target:
            break
        country = chr(int(candidate.lat))
        if near[country] >= spec.per_country:
            continue
        if candidate.creator_id and creators[candidate.creator_id] >= spec.per_creator:
            continue
        looked.append(candidate.sequence_id)
        for row in outcomes[candidate.sequence_id].tasks:
            creator = candidate.creator_id or row["attribution"]["creator_id"]
            if true[row["country"]] < spec.per_country and creators[creator] < spec.per_creator:
                taken.append(candidate.sequence_id)
                near[country] += 1
                true[row["country"]] += 1
                creators[creator] += 1
    return looked, taken


def _picked(
    spec: PoolSpec,
    candidates: Sequence[Candidate],
    outcomes: dict[str, Outcome],
    workers: int,
    known: dict[str, Outcome] | None = None,
) -> tuple[list[str], list[str], set[str], Picker]:
    fetched: set[str] = set()
    lock = threading.Lock()

    def fetch(candidate: Candidate) -> Outcome:
        with lock:
            assert candidate.sequence_id not in fetched
            fetched.add(candidate.sequence_id)
        return outcomes[candidate.sequence_id]

    picker = Picker(spec, lambda candidate: chr(int(candidate.lat)), fetch, workers, known)
    looked = [outcome.sequence_id for outcome in picker.run(candidates)]
    return looked, [str(row["sequence_id"]) for row in picker.rows], fetched, picker


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(0, 60),
    target=st.integers(1, 30),
    per_country=st.integers(1, 6),
    per_creator=st.integers(1, 9),
    workers=st.integers(1, 8),
)
def test_fetching_several_at_once_picks_what_one_by_one_picks(
    seed: int, count: int, target: int, per_country: int, per_creator: int, workers: int
) -> None:
    spec = PoolSpec(target=target, per_country=per_country, per_creator=per_creator)
    candidates, outcomes = _world(seed, count)
    looked, taken, fetched, picker = _picked(spec, candidates, outcomes, workers)
    assert (looked, taken) == _one_by_one(spec, candidates, outcomes)
    assert fetched == set(looked), "no frame of a capped candidate is asked for"
    assert len(looked) + sum(picker.passed_over.values()) == count


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), cut=st.integers(0, 25))
def test_a_resumed_pick_asks_only_for_the_rest(seed: int, cut: int) -> None:
    spec = PoolSpec(target=12, per_country=4, per_creator=6)
    candidates, outcomes = _world(seed, 50)
    looked, taken, _, _ = _picked(spec, candidates, outcomes, 4)
    known = {name: outcomes[name] for name in looked[:cut]}
    again, taken_again, fetched, _ = _picked(spec, candidates, outcomes, 4, known)
    assert (again, taken_again) == (looked, taken)
    assert fetched == set(looked[cut:])


def test_caps_are_counted_under_their_names() -> None:
    spec = PoolSpec(target=99, per_country=2, per_creator=3)
    candidates = [Candidate(f"s{n}", "1", "x", None, ord("AB"[n % 2]), n) for n in range(9)]
    outcomes = {c.sequence_id: Outcome(c.sequence_id, (_row(chr(int(c.lat)), "x", "s"),)) for c in candidates}
    _, _, fetched, picker = _picked(spec, candidates, outcomes, 4)
    assert len(picker.rows) == 3
    assert len(fetched) == 3
    assert picker.passed_over[CREATOR_CAP] + picker.passed_over[COUNTRY_CAP] == 6


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(-60, 70), st.floats(-180, 180)), min_size=1, max_size=40), st.randoms())
def test_order_does_not_depend_on_the_listing(points: list[tuple[float, float]], dice: random.Random) -> None:
    rows = [(f"seq{number}", lat, lon) for number, (lat, lon) in enumerate(points)]
    shuffled = rows[:]
    dice.shuffle(shuffled)

    def drawn(listed: list[tuple[str, float, float]]) -> list[str]:
        ids = [name for name, _, _ in listed]
        lat, lon = (np.array([row[axis] for row in listed]) for axis in (1, 2))
        return [ids[place] for place in sampling_order(ids, lat, lon, 7, -0.75)]

    assert drawn(rows) == drawn(shuffled)
    assert sorted(drawn(rows)) == sorted(name for name, _, _ in rows)


def test_density_counts_the_one_degree_cell_across_the_date_line() -> None:
    lat, lon = np.array([0.5, 0.6, 0.5, -0.5]), np.array([-179.5, 180.5, 10.0, 10.0])
    assert densities(lat, lon).tolist() == [2, 2, 1, 1]


def test_crowded_cells_are_drawn_less_often() -> None:
    ids = [f"crowd{n}" for n in range(900)] + [f"alone{n}" for n in range(100)]
    lat = np.array([48.5] * 900 + [n * 0.7 - 35.0 for n in range(100)])
    lon = np.array([2.5] * 900 + [n * 3.0 - 150.0 for n in range(100)])
    first = [ids[place] for place in sampling_order(ids, lat, lon, 7, -0.75)][:100]
    assert sum(name.startswith("alone") for name in first) > 60
    even = [ids[place] for place in sampling_order(ids, lat, lon, 7, 0.0)][:100]
    assert sum(name.startswith("alone") for name in even) < 30


def test_draws_are_even_and_depend_on_the_seed() -> None:
    values = np.array([draw(7, f"s{n}") for n in range(4000)])
    assert values.min() > 0.0 and values.max() < 1.0
    assert abs(values.mean() - 0.5) < 0.02
    assert draw(7, "s1") != draw(8, "s1")
