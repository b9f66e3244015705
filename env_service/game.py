"""What sessions share and an operator sets: splits, rules, and which task a reset means.

Loaded once per process and never changed. Not here: loading (the server does it) and play (see
`environment`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from env_service import __version__
from env_service.errors import GeoError, joined
from env_service.geography import Geography
from env_service.imagery import ImageryBackend
from env_service.maps import render_map
from env_service.models import Mode
from env_service.scoring import (
    GAME,
    Curve,
    after_cost,
    country_only,
    partial_credit,
    training_reward,
    training_score,
)
from env_service.tasks import Task
from env_service.views import PanoramaCache

MODE_OFFERS: dict[Mode, frozenset[str]] = {
    "agentic": frozenset({"look", "zoom", "move", "map", "names"}),
    "nmpz": frozenset({"map", "names"}),
    "single_shot": frozenset(),
}
"""Capabilities a mode leaves to its tools: "map" is pictures of maps, "names" what is said of a point. The
guess needs none, so an episode can end in every mode."""

WARM_SPANS_DEG = (7.0, 60.0)
"""One map at each level of detail, so that all outlines are read."""

Credit = Literal["none", "partial", "country_only"]


class Refusal(GeoError):
    """A request refused before it changed anything; `code` names it on the wire."""

    code = "REFUSED"

    def __str__(self) -> str:
        # What an agent reads in place of an observation, so the environment's version has to follow it.
        return joined(self.problem, self.fix)


class NotReset(Refusal):
    """A step before the first reset."""

    code = "NOT_RESET"


class EpisodeOver(Refusal):
    """A step after the end."""

    code = "EPISODE_DONE"


class BadSelection(Refusal):
    """A reset that names no task."""

    code = "BAD_SELECTION"


class NoSuchSplit(BadSelection):
    """A split this service does not hold."""


RESET_FIELDS = ("split", "index", "task_index", "seed", "episode_id")


def check_reset_fields(names: Iterable[str]) -> None:
    """Refuse what `reset` does not take, so that a misspelt `index` does not play task 0.

    Raises:
        BadSelection: names what it does take.
    """
    if unknown := sorted(set(names) - set(RESET_FIELDS)):
        shown = ", ".join(unknown)[:80].encode("ascii", "replace").decode()
        raise BadSelection(f"reset takes no {shown}", f"It takes {', '.join(RESET_FIELDS)}.")


@dataclass(frozen=True)
class Split:
    """Tasks of one split and where their pictures come from."""

    tasks: Sequence[Task]
    imagery: ImageryBackend


@dataclass(frozen=True)
class Rules:
    """What an operator may change.

    Attributes:
        mode: which tools there are, see `MODE_OFFERS`.
        max_turns: calls of an episode.
        view_px: edge of every picture in pixels.
        curve: formula of the reward; the game's own by default.
        credit: "none"; "partial" adds to the score for the right country or region; "country_only" scores
            nothing else.
        environment_version: reported with every observation and state.
    """

    mode: Mode = "agentic"
    max_turns: int = 12
    view_px: int = 640
    curve: Curve = GAME
    credit: Credit = "none"
    environment_version: str = __version__

    @property
    def reward_name(self) -> str:
        """Name stored beside every reward under these rules."""
        return self.curve.name if self.credit == "none" else f"{self.curve.name}+{self.credit}"


@dataclass(frozen=True)
class Game:
    """Everything sessions share: loaded once per process, never changed."""

    splits: Mapping[str, Split]
    geography: Geography
    rules: Rules = field(default_factory=Rules)
    cache: PanoramaCache | None = None

    def warm(self) -> None:
        """Load what geography and maps load on first use, so that no session waits for it."""
        self.geography.describe(0.0, 0.0)
        for span_deg in WARM_SPANS_DEG:
            render_map(0.0, 0.0, span_deg)

    def tasks(self, split: str) -> Sequence[Task]:
        """Tasks of a split.

        Raises:
            NoSuchSplit: the service does not hold it.
        """
        if not isinstance(split, str) or split not in self.splits:
            raise NoSuchSplit("there is no such split", f"This service holds: {', '.join(self.splits)}.")
        return self.splits[split].tasks

    @property
    def default_split(self) -> str:
        """The first split of the configuration."""
        return next(iter(self.splits))

    def address(self, split: str, index: object, seed: object) -> int:
        """Which task a reset means.

        Args:
            split: a split the service holds.
            index: an address, from 0; taken as it is, never wrapped.
            seed: used without an index; any integer, modulo the number of tasks. Neither given means task 0.

        Raises:
            BadSelection: not an integer, or an index out of range.
        """
        count = len(self.tasks(split))
        for value in (index, seed):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise BadSelection("index and seed are integers")
        if isinstance(index, int):
            if not 0 <= index < count:
                raise BadSelection(f"index is out of range: split {split} has tasks 0 to {count - 1}")
            return index
        return seed % count if isinstance(seed, int) else 0


def worth(
    game: Game, task: Task, guessed_code: str | None, distance_km: float, cost: float
) -> tuple[float, float]:
    """Score and reward of a guess under the operator's rules.

    Args:
        game: rules and geography.
        task: the truth.
        guessed_code: ISO code of the country that holds the guess; None at sea.
        distance_km: from the guess to the truth.
        cost: of the calls made.
    """
    rules, geography = game.rules, game.geography
    truth = geography.country_by_code(task.country_code) if task.country_code else None
    truth = truth or geography.country_by_name(task.country)
    true_code, true_region = (truth.code, truth.subregion) if truth else (None, None)
    if rules.credit == "country_only":
        score = country_only(guessed_code, true_code)
        return score, after_cost(score, cost, rules.curve)
    extra = 0.0
    if rules.credit == "partial":
        guessed = geography.country_by_code(guessed_code) if guessed_code else None
        extra = partial_credit(guessed_code, true_code, guessed.subregion if guessed else None, true_region)
    score = min(1.0, training_score(distance_km, rules.curve) + extra)
    return score, training_reward(distance_km, cost, rules.curve, extra)
