"""Which frames of a drive make one task.

Positions here are places in the sequence's own order, frame 0 being captured first. A window is a run of
captured frames; those of its frames that pass the field rules become the task's frames, the one in the
middle is where an episode opens.
"""

from collections.abc import Sequence

Window = range


def around(anchor: int, total: int, length: int) -> Window:
    """Up to `length` frames with the anchor in the middle, moved inwards where the drive ends."""
    length = min(length, total)
    first = min(max(0, anchor - length // 2), total - length)
    return range(first, first + length)


def planned(anchor: int, total: int, length: int, count: int) -> list[Window]:
    """`count` windows that do not overlap: the one around the anchor, then its neighbours, nearest first.

    Fewer where the drive is too short. Windows at the two ends may be shorter than `length`.
    """
    if total < 1:
        return []
    middle = around(anchor, total, length)
    after = [range(first, min(first + length, total)) for first in range(middle.stop, total, length)]
    before = [range(max(0, stop - length), stop) for stop in range(middle.start, 0, -length)]
    windows = [middle]
    for step in range(max(len(after), len(before))):
        windows += [*after[step : step + 1], *before[step : step + 1]]
    return windows[:count]


def greedy(usable: Sequence[bool], length: int, min_frames: int) -> list[Window]:
    """Every window that holds `min_frames` usable frames, left to right.

    A window starts at the first usable frame that no kept window covers; where it holds too few, the next
    usable frame is tried.
    """
    windows = []
    position = 0
    while position < len(usable):
        if usable[position]:
            window = range(position, min(position + length, len(usable)))
            if sum(usable[place] for place in window) >= min_frames:
                windows.append(window)
                position = window.stop
                continue
        position += 1
    return windows


def middle_of(frames: Sequence[object]) -> int:
    """Position of the start frame among a task's frames."""
    return len(frames) // 2
