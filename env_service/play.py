"""How an episode is played: reset, step and state, whatever the tools are.

`EpisodeEnvironment` is an OpenEnv environment without tools; `environment` adds them. A step runs one tool,
by one path for every transport. Everything large is shared between sessions in one frozen `Game`; an instance
holds the episode alone.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import env_service.light_openenv  # noqa: F401  (first: it keeps gradio, which takes seconds, out)

# isort: split
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import EnvironmentMetadata

from env_service.episode import INVALID, Episode, Pose
from env_service.game import MODE_OFFERS, BadSelection, EpisodeOver, Game, NotReset, check_reset_fields
from env_service.models import MAX_EPISODE_ID, GeoAction, GeoObservation, GeoState
from env_service.observing import Shown, facing, observe, prompt, seen
from env_service.tasks import Task
from env_service.toolbox import InvalidAction, ToolSpec, listed, resolve, tool_specs

NAME = "geoguesser_env"
DESCRIPTION = (
    "Guess where on Earth a street-level panorama was taken: look, walk, pin candidates, commit once."
)


@dataclass(frozen=True)
class Bookmark:
    """Where a play stands, as a value that nothing changes afterwards; see `EpisodeEnvironment.bookmark`."""

    task: Task | None
    split: str
    episode_id: str | None
    episode: Episode | None
    tools: tuple[ToolSpec, ...]


class EpisodeEnvironment(Environment):
    """One session's play, with the tools of its subclass.

    A method marked with `@tool` is a tool on every surface; it gets its checked arguments, changes
    `_episode`, and returns `Shown` or plain feedback.

    Args:
        game: what all sessions share. Constructing an instance is trivial, because OpenEnv builds one for
            every request to its discovery routes.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, game: Game) -> None:
        super().__init__()
        self.game = game
        self._task: Task | None = None
        self._split = ""
        self._episode_id: str | None = None
        self._episode: Episode | None = None
        self._tools: tuple[ToolSpec, ...] = ()

    # ---- OpenEnv

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        split: str | None = None,
        index: int | None = None,
        task_index: int | None = None,
        **unknown: Any,
    ) -> GeoObservation:
        """Start an episode and show the opening view. It faces true north; a flat photograph looks where it
        was taken to look.

        Args:
            seed: picks task `seed` modulo the number of tasks; used when no index is given.
            episode_id: echoed in the state; random if not given.
            split: which split; the first of the service if not given.
            index: address of the task, from 0. Never wrapped.
            task_index: the same under its other name.
            unknown: refused.

        Raises:
            BadSelection: no such split, index out of range, or an argument nobody knows.
            MissingFrame: the opening picture is not in the store.
        """
        check_reset_fields(unknown)
        name = self.game.default_split if split is None else split
        if index is not None and task_index is not None and index != task_index:
            raise BadSelection("index and task_index are two names for one thing and differ", "Give one.")
        chosen = self.game.address(name, index if index is not None else task_index, seed)
        if episode_id is not None and not (isinstance(episode_id, str) and len(episode_id) <= MAX_EPISODE_ID):
            raise BadSelection(f"episode_id is a string of at most {MAX_EPISODE_ID} characters")
        task = self.game.tasks(name)[chosen]
        episode = Episode(self.game.rules.max_turns, Pose(task.start_frame))
        image = self._look(task, name, episode.pose)
        self._task, self._split, self._episode = task, name, episode
        self._episode_id = episode_id or uuid.uuid4().hex
        self._tools = self.offered(name, task)
        month = task.start.captured_at
        taken = f" Captured in {month}." if month else ""
        return self._observe(Shown(f"{self._facing()}{taken}", image, "view"), prompt=prompt(self.tools))

    def step(
        self, action: GeoAction | Mapping[str, Any], timeout_s: float | None = None, **_: Any
    ) -> GeoObservation:
        """Spend one turn on one call.

        Args:
            action: a flat action; `metadata`, which OpenEnv's own action class carries, is ignored.
            timeout_s: OpenEnv's argument; the server keeps the time.

        Raises:
            NotReset, EpisodeOver: nothing has changed.
            MissingFrame: a picture is not in the store; nothing has changed.
        """
        episode = self._episode
        if episode is None or self._task is None:
            raise NotReset("there is no episode yet", "Reset first.")
        if episode.over:
            raise EpisodeOver("the episode is over", "Reset to start another.")
        fields = action.wire() if isinstance(action, GeoAction) else dict(action)
        fields.pop("metadata", None)
        try:
            shown = self._call(fields)
        except InvalidAction as fault:
            self._episode = episode.spend(INVALID)
            shown = Shown(f"Not a valid action: {fault}. The turn is spent.")
        except BaseException:
            self._episode = episode
            raise
        self._episode = self._episode.settle() if self._episode else None
        return self._observe(shown)

    @property
    def state(self) -> GeoState:
        """Where the session stands; nothing in it depends on the place."""
        rules, episode = self.game.rules, self._episode
        if episode is None or self._task is None:
            return GeoState(mode=rules.mode, environment_version=rules.environment_version)
        return GeoState(
            episode_id=self._episode_id,
            step_count=len(episode.calls),
            split=self._split,
            task_index=self._task.task_index,
            mode=rules.mode,
            max_turns=episode.max_turns,
            steps_remaining=episode.turns_left,
            action_cost=episode.cost,
            done=episode.over,
            outcome=episode.outcome,
            environment_version=rules.environment_version,
        )

    def get_metadata(self) -> EnvironmentMetadata:
        """Name, description and version for OpenEnv's discovery route."""
        return EnvironmentMetadata(
            name=NAME, description=DESCRIPTION, version=self.game.rules.environment_version
        )

    # ---- Task API: addresses only, because a task's own id and length are bound to the place

    def list_splits(self) -> list[str]:
        """Names of the splits, as configured."""
        return list(self.game.splits)

    def num_tasks(self, split: str) -> int:
        """Number of tasks. Raises NoSuchSplit."""
        return len(self.game.tasks(split))

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """What `reset` needs to play a task. Raises NoSuchSplit, IndexError."""
        if not 0 <= index < self.num_tasks(split):
            raise IndexError(index)
        return {"id": f"{split}-{index:05d}", "split": split, "index": index}

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """All tasks of a split. Raises NoSuchSplit."""
        return self.get_task_range(split)

    def get_task_range(
        self, split: str, start: int | None = None, stop: int | None = None
    ) -> list[dict[str, Any]]:
        """Tasks in [start, stop), with the bounds of a Python slice. Raises NoSuchSplit."""
        return [self.get_task(split, index) for index in range(self.num_tasks(split))[start:stop]]

    # ---- how a call is carried out

    def offered(self, split: str, task: Task) -> tuple[ToolSpec, ...]:
        """Tools that mode, imagery and task can all serve, other forms included, in order of definition."""
        can = self.game.splits[split].imagery.abilities(task)
        able = {"names"} | {name for name in ("look", "zoom", "move", "map") if getattr(can, name)}
        offers = able & MODE_OFFERS[self.game.rules.mode]
        return tuple(spec for spec in self.specs() if spec.needs <= offers)

    @classmethod
    def specs(cls) -> tuple[ToolSpec, ...]:
        """All tools of the class, other forms included."""
        return tool_specs(cls)

    @property
    def last_call_valid(self) -> bool:
        """Whether a tool answered the last call."""
        return self._episode is None or self._episode.calls[-1:] != (INVALID,)

    @property
    def finished(self) -> bool:
        """Whether there was an episode and it is over."""
        return self._episode is not None and self._episode.over

    @property
    def bookmark(self) -> Bookmark:
        """Where the play stands now. Of a tool class's own state nothing is in it."""
        return Bookmark(self._task, self._split, self._episode_id, self._episode, self._tools)

    def resume(self, at: Bookmark) -> None:
        """Go on from where another environment of the same game stood."""
        self._task, self._split, self._episode_id = at.task, at.split, at.episode_id
        self._episode, self._tools = at.episode, at.tools

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools of this episode as a model is shown them; of an empty session, none."""
        return listed(self._tools)

    def _call(self, fields: dict[str, Any]) -> Shown:
        spec = resolve(self._tools, fields.pop("op", None), fields)
        arguments = spec.bind(fields)
        self._episode = self._now.spend(self._counted_as(spec), spec.cost)
        shown = getattr(self, spec.name)(**arguments)
        return shown if isinstance(shown, Shown) else Shown(str(shown))

    def _counted_as(self, spec: ToolSpec) -> str:
        """Another form of a tool counts as the tool."""
        return next((other.name for other in self.tools if other.op == spec.op), spec.name)

    @property
    def _now(self) -> Episode:
        if self._episode is None:
            raise NotReset("there is no episode yet", "Reset first.")
        return self._episode

    @property
    def _playing(self) -> Task:
        if self._task is None:
            raise NotReset("there is no episode yet", "Reset first.")
        return self._task

    def _observe(self, shown: Shown, prompt: str = "") -> GeoObservation:
        return observe(self.game, self._split, self._playing, self._now, self._tools, shown, prompt)

    def _facing(self) -> str:
        """Where the picture of this pose looks, in words."""
        backend = self.game.splits[self._split].imagery
        return facing(seen(backend, self._playing, self._now.pose))

    def _look(self, task: Task, split: str, pose: Pose) -> bytes:
        backend, px = self.game.splits[split].imagery, self.game.rules.view_px
        return backend.view(task, pose.frame_index, pose.heading_deg, pose.pitch_deg, pose.fov_deg, px)
