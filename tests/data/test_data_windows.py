"""Which captured frames make a task."""

from hypothesis import given
from hypothesis import strategies as st

from geo_assets.data._windows import around, greedy, middle_of, planned

COUNTS = st.integers(1, 200)


@given(total=COUNTS, length=st.integers(1, 40), anchor=st.integers(0, 199))
def test_a_window_holds_its_anchor_and_stays_inside(total: int, length: int, anchor: int) -> None:
    anchor = min(anchor, total - 1)
    window = around(anchor, total, length)
    assert len(window) == min(length, total)
    assert anchor in window
    assert window.start >= 0 and window.stop <= total


@given(total=COUNTS, length=st.integers(1, 40), anchor=st.integers(0, 199), count=st.integers(1, 9))
def test_planned_windows_do_not_overlap(total: int, length: int, anchor: int, count: int) -> None:
    windows = planned(min(anchor, total - 1), total, length, count)
    places = [place for window in windows for place in window]
    assert len(places) == len(set(places))
    assert windows[0] == around(min(anchor, total - 1), total, length)
    assert len(windows) <= count
    assert count < 9 * total or sorted(places) == list(range(total))


def test_enough_windows_cover_the_whole_drive() -> None:
    places = [place for window in planned(30, 100, 24, 99) for place in window]
    assert sorted(places) == list(range(100))


@given(st.lists(st.booleans(), max_size=120), st.integers(1, 30), st.integers(1, 4))
def test_greedy_windows_hold_enough_and_miss_none(usable: list[bool], length: int, least: int) -> None:
    windows = greedy(usable, length, least)
    covered = {place for window in windows for place in window}
    assert sum(len(window) for window in windows) == len(covered)
    assert all(usable[window.start] and sum(usable[p] for p in window) >= least for window in windows)
    for start in range(len(usable)):
        left = [p for p in range(start, min(start + length, len(usable))) if usable[p]]
        if usable[start] and len(left) >= least:
            assert covered & set(range(start, min(start + length, len(usable))))


def test_sparse_pictures_make_two_windows() -> None:
    usable = [place in {9, 92, 111, 147, 299, 380, 391, 399, 635} for place in range(660)]
    assert greedy(usable, 24, 2) == [range(92, 116), range(380, 404)]


def test_the_start_is_the_middle_frame() -> None:
    assert [middle_of([0] * n) for n in (1, 2, 3, 24)] == [0, 1, 1, 12]
