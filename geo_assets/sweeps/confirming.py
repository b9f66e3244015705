"""What a run played stands only once its endpoint has been seen again after it, and was the same then.

A run notes in `unconfirmed.json` what the endpoint was before it and which episodes stood already (`settle`).
It looks again at its end (`confirm`): what it played under doubt is set aside; without a doubt the note goes.
A run that is killed cannot look a second time: its note stays, and the next run does it for both, even where
nothing is left to play.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from env_service.canonical import atomic_write, canonical_json
from env_service.errors import GeoError
from geo_assets.sweeps.episode_file import Key
from geo_assets.sweeps.store import UNCONFIRMED, SweepStore
from resources.replies import ProviderError

Begun = tuple[SweepStore, frozenset[Key]]
"""The episodes of an arm that is swept, and the keys of those that stand whatever the second look says."""


class NotConfirmed(GeoError):
    """The endpoint could not be looked at after the sweep; what was played was set aside."""


def unconfirmed(folder: Path) -> bool:
    """Whether a run of a sweep has played here and not looked at its endpoint a second time."""
    return (folder / UNCONFIRMED).exists()


def settle(store: SweepStore, seen: Any, say: Callable[[str], None]) -> frozenset[Key]:
    """Decide over what an unfinished run left, and note what this one begins with.

    Args:
        store: the arm's episodes.
        seen: what the endpoint is now, as JSON.
        say: told of what was set aside.

    Returns:
        The keys that stand: an unfinished run's are among them if it had seen the same.
    """
    path = store.folder / UNCONFIRMED
    try:
        left = json.loads(path.read_text(encoding="utf-8"))
        sure = {(int(sample), int(task)) for sample, task in left["sure"]}
        if left["listed"] != seen and (doubtful := store.keys - sure):
            aside = store.set_aside(doubtful)
            say(f"The endpoint is another one than {len(doubtful):,} episodes met; they went to {aside}")
    except (OSError, ValueError, KeyError, TypeError):
        pass  # nothing was left
    atomic_write(path, canonical_json({"listed": seen, "sure": [list(key) for key in sorted(store.keys)]}))
    return frozenset(store.keys)


def confirm(
    begun: Sequence[Begun], again: Callable[[], None], sweep: str, say: Callable[[str], None]
) -> None:
    """Look a second time, and set aside what was played if that does not show the same.

    The notes stay until `clear`: what was found out must be written before them.

    Args:
        begun: the arms that were swept from the endpoint, from `settle`.
        again: looks at it; raises where it is not as it was.
        sweep: what to type after `geo sweep`.
        say: told of what was set aside.

    Raises:
        NotConfirmed: the endpoint gave no answer.
        GeoError: what `again` raises otherwise.
    """
    try:
        again()
    except GeoError as error:
        # Without an answer nobody knows what was served in the end, which is no better than another answer.
        moved = [
            f"the {len(played):,} episodes played now were moved to {store.set_aside(played)}"
            for store, before in begun
            if (played := store.keys - before)
        ]
        for words in moved:
            say(f"{sweep}: {words}")
        if not isinstance(error, ProviderError):
            raise
        raise NotConfirmed(
            "; ".join(
                [
                    f"{sweep}: the endpoint does not say after the sweep what it serves ({error.problem})",
                    *moved,
                ]
            ),
            f"Check the endpoint, then run: geo sweep {sweep} --resume",
        ) from error


def clear(begun: Sequence[Begun]) -> None:
    """The endpoint has been seen again: no run of these arms is in doubt any more."""
    for store, _ in begun:
        (store.folder / UNCONFIRMED).unlink(missing_ok=True)
