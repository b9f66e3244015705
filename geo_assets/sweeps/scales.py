"""One reward scale: what an environment paid must follow from distance and cost by a formula with a name.

No table reads a stored reward. Still, a sweep whose environment pays by another formula than the game's, or
by two, was played in an environment that somebody changed, and is refused.
"""

import math
from collections.abc import Iterable

from env_service.errors import GeoError
from env_service.scoring import BOARD_V1, GAME, NO_GUESS_REWARD, training_reward
from geo_assets.sweeps.records import EpisodeRecord, Result

KNOWN = {curve.name: curve for curve in (GAME, BOARD_V1)}
TOLERANCE = 1e-9


class TwoRewardScales(GeoError):
    """An episode's stored reward does not belong to the scale that it names, or episodes name two."""


def one_scale(records: Iterable[EpisodeRecord], slug: str) -> str:
    """Make sure that stored rewards are what one known formula gives; its name, or "" without episodes.

    Raises:
        TwoRewardScales: names the first episode that is not, and its figures.
    """
    names: dict[str, EpisodeRecord] = {}
    for record in records:
        result = record.result
        names.setdefault(result.env_curve, record)
        where = f"{record.arm}, task {record.task_index}, sample {record.sample}"
        if result.env_curve not in KNOWN:
            raise TwoRewardScales(
                f"{where} was paid by the curve {result.env_curve!r}; an evaluation is paid by "
                f"{' or '.join(KNOWN)}",
                _fix(slug),
            )
        due = _due(result)
        if not math.isclose(result.env_reward, due, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            raise TwoRewardScales(
                f"{where} was paid {result.env_reward:g} where {result.env_curve} gives {due:g}", _fix(slug)
            )
    if len(names) > 1:
        raise TwoRewardScales(f"{slug} holds episodes paid by {' and by '.join(sorted(names))}", _fix(slug))
    return next(iter(names), "")


def _due(result: Result) -> float:
    if result.outcome != "guess" or result.distance_km is None:
        return NO_GUESS_REWARD
    return training_reward(result.distance_km, result.cost, KNOWN[result.env_curve])


def _fix(slug: str) -> str:
    return f"Build the environment again (geo build --only eval_environment), then run: geo sweep {slug}"
