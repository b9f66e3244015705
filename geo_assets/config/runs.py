"""Training runs, read from `runs.yaml` into frozen values; every refusal names the file and the line.

A run is what an adapter is trained with. What is declared at its top is the live run; values of its `sandbox`
block replace single ones where the profile is the sandbox. `load_runs` hands out the runs of one profile with
that done, so a sandbox value is part of nothing but the sandbox asset.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from env_service.errors import GeoError
from env_service.scoring import Curve
from geo_assets.config.arms_yaml import (
    ArmsFileError,
    compose_text,
    line_of,
    locate,
    mapping,
    only,
    plain,
    sequence,
    text_of,
)
from geo_assets.config.settings import Profile

RUNS_FILE = Path(__file__).with_name("runs.yaml")
OVERRIDES = "sandbox"
NESTED = ("curve", "lora", "vllm")
LONG = 80

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=60)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]


class UnknownRun(GeoError):
    """A run was asked for that the profile does not have; the message names those it has."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CurveSpec(_Frozen):
    """The reward's shape; see `env_service.scoring.Curve`."""

    short_weight: Share
    long_decay_km: Annotated[float, Field(gt=0)]
    cost_scale: Annotated[float, Field(ge=0)]


class LoraSpec(_Frozen):
    """The adapter: rank, alpha, dropout, and the linear layers it sits on, by name or as one pattern."""

    r: Count
    alpha: Count
    dropout: Annotated[float, Field(ge=0, lt=1)]
    targets: Annotated[tuple[Text, ...], Field(min_length=1)] | Text


class VllmSpec(_Frozen):
    """Whether vLLM generates beside the trainer, the share of a card's memory that it takes, and the longest
    conversation in tokens, opening included."""

    use: bool
    memory: Annotated[float, Field(gt=0, lt=1)]
    max_model_length: Count


class RunSpec(_Frozen):
    """One training run, as one profile has it.

    Attributes:
        slug: its name; the asset is `adapter_<slug>`.
        label: its name for people.
        asset: whether the graph has its adapter.
        base: the asset of the model it starts from.
        profiles: where it exists.
        seed: of sampling, of the order of tasks and of the adapter's first weights.
        generations: episodes of one task that are compared with each other.
        tasks_per_step: tasks per optimizer step.
        per_device_batch: episodes in one forward pass on one card.
        generation_batch: episodes played together, over all cards.
        scale_rewards: what divides an advantage: its group's deviation, the batch's, or nothing.
        beta: weight of the divergence from the base model.
        curve: reward of a guess.
        refusal_charge: taken off the reward for every call made after the end of the episode.
        max_turns: the turn budget; the environment must have the same.
        view_px: edge of the pictures shown.
        steps: optimizer steps.
        save_every: steps between checkpoints; 0 keeps none.
        max_completion_length: tokens of a whole episode after the opening, pictures and results included.
        max_turn_length: tokens of one reply.
        importance_sampling: correction for vLLM's probabilities differing from the trainer's.
        hardware: what a job is given.
    """

    slug: Slug
    label: Text
    asset: bool
    base: Slug
    profiles: tuple[Profile, ...]
    seed: Annotated[int, Field(ge=0, lt=2**31)]
    generations: Annotated[int, Field(ge=2)]
    tasks_per_step: Count
    per_device_batch: Count
    generation_batch: Count
    scale_rewards: Literal["group", "batch", "none"]
    beta: Annotated[float, Field(ge=0)]
    curve: CurveSpec
    refusal_charge: Share
    max_turns: Annotated[int, Field(ge=1, le=1000)]
    view_px: Annotated[int, Field(ge=32)]
    steps: Count
    save_every: Annotated[int, Field(ge=0)]
    lora: LoraSpec
    learning_rate: Annotated[float, Field(gt=0)]
    lr_schedule: Literal["constant", "linear", "cosine"]
    loss: Literal["dapo", "grpo", "dr_grpo", "bnpo"]
    num_iterations: Count
    temperature: Annotated[float, Field(gt=0)]
    max_completion_length: Count
    max_turn_length: Count
    mask_truncated_completions: bool
    importance_sampling: Literal["off", "token_truncate"]
    vllm: VllmSpec
    hardware: Text

    @model_validator(mode="after")
    def _batches_fit(self) -> Self:
        if self.generation_batch % self.generations:
            raise ValueError("generation_batch must hold whole groups, so be a multiple of generations")
        if self.generation_batch % self.per_device_batch:
            raise ValueError("generation_batch must be a multiple of per_device_batch")
        self.gradient_accumulation(1)
        return self

    @property
    def episodes_per_step(self) -> int:
        """Episodes of one optimizer step."""
        return self.tasks_per_step * self.generations

    def gradient_accumulation(self, world_size: int) -> int:
        """Forward passes per optimizer step and card: tasks x generations / (per-device batch x cards).

        Raises:
            ValueError: the step's episodes do not divide evenly over that many cards.
        """
        episodes, at_once = self.episodes_per_step, self.per_device_batch * world_size
        if episodes % at_once:
            raise ValueError(
                f"{episodes} episodes per step do not divide into batches of {self.per_device_batch} on "
                f"{world_size} device{'' if world_size == 1 else 's'}"
            )
        return episodes // at_once

    def reward_curve(self) -> Curve:
        """The curve that rewards are computed with; its name says its values."""
        shape = self.curve
        return Curve(
            f"training-w{shape.short_weight:g}-L{shape.long_decay_km:g}-c{shape.cost_scale:g}",
            short_weight=shape.short_weight,
            long_decay_km=shape.long_decay_km,
            cost_scale=shape.cost_scale,
        )

    def identity(self) -> dict[str, Any]:
        """What alters the weights, as JSON; names for people and the profiles do not."""
        unused = set() if self.vllm.use else {"vllm", "importance_sampling"}
        return self.model_dump(mode="json", exclude={"label", "asset", "profiles", "hardware", *unused})


@dataclass(frozen=True)
class Runs:
    """The runs of one profile, in the order of the file."""

    profile: Profile
    runs: tuple[RunSpec, ...]

    def get(self, slug: str) -> RunSpec:
        """The run with that slug.

        Raises:
            UnknownRun: the profile has none; the message lists those it has.
        """
        for run in self.runs:
            if run.slug == slug:
                return run
        known = ", ".join(run.slug for run in self.runs) or "none"
        raise UnknownRun(f"There is no run {slug!r} in profile {self.profile}", f"It is one of: {known}")

    @property
    def assets(self) -> tuple[RunSpec, ...]:
        """The runs whose adapters are assets."""
        return tuple(run for run in self.runs if run.asset)


def load_runs(profile: Profile, path: Path = RUNS_FILE) -> Runs:
    """Read and check the whole file, then keep what one profile has, its overrides applied.

    Raises:
        ArmsFileError: broken YAML, an unknown key, a value out of range, a repeated slug, or a run that
            extends one that does not stand above it.
    """
    return _runs_of(text_of(path), profile, path)


@lru_cache(maxsize=8)
def _runs_of(text: str, profile: Profile, path: Path) -> Runs:
    body = mapping(compose_text(text, path), path, "the file")
    only(body, {"defaults", "runs"}, path)
    defaults = body.get("defaults")
    if defaults is not None:
        mapping(defaults, path, "defaults")
    layers: dict[str, tuple[yaml.Node, ...]] = {}
    found: list[RunSpec] = []
    for node in sequence(body.get("runs"), path, "runs"):
        slug, above = _ancestry(node, layers, path)
        layers[slug] = (node, *above)
        sources = (*layers[slug], *((defaults,) if defaults is not None else ()))
        # The live reading is checked in every profile: a fault in it is found before a card is rented.
        live = _spec(slug, sources, False, path)
        tuned = _spec(slug, sources, True, path)
        found.append(live if profile == "live" else tuned)
    return Runs(profile, tuple(run for run in found if profile in run.profiles))


def _ancestry(
    node: yaml.Node, layers: Mapping[str, tuple[yaml.Node, ...]], path: Path
) -> tuple[str, tuple[yaml.Node, ...]]:
    """Slug of a run, and the declarations that it extends, nearest first."""
    fields = mapping(node, path, "a run")
    own = plain(node)
    slug = str(own.get("slug", ""))
    if slug in layers:
        first = line_of(layers[slug][0])
        raise ArmsFileError(path, line_of(node), f"run {slug!r} appears twice, first on line {first}")
    if "extends" not in own:
        return slug, ()
    if not isinstance(own["extends"], str) or own["extends"] not in layers:
        problem = f"run {slug!r} extends {own['extends']!r}, and no run of that name stands above it"
        raise ArmsFileError(path, line_of(fields["extends"]), problem)
    return slug, layers[own["extends"]]


def _spec(slug: str, sources: tuple[yaml.Node, ...], tuned: bool, path: Path) -> RunSpec:
    """A run out of its declarations, nearest first; with the overrides where it is to be tuned."""
    values: dict[str, Any] = {}
    for source in reversed(sources):
        values = _over(values, {k: v for k, v in plain(source).items() if k not in (OVERRIDES, "extends")})
    if tuned:
        for source in reversed(sources):
            override = plain(source).get(OVERRIDES)
            if override is not None and not isinstance(override, dict):
                where = locate(source, (OVERRIDES,))
                raise ArmsFileError(path, line_of(where or source), f"{OVERRIDES} must be a mapping")
            values = _over(values, override or {})
    try:
        return RunSpec.model_validate(values)
    except ValidationError as error:
        raise _fault(error, f"run {slug or '(without slug)'!r}", sources, tuned, path) from None


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """One declaration laid over another; of the nested fields, value by value."""
    merged = {**below, **above}
    for key in NESTED:
        if isinstance(below.get(key), dict) and isinstance(above.get(key), dict):
            merged[key] = {**below[key], **above[key]}
    return merged


def _fault(
    error: ValidationError, what: str, sources: tuple[yaml.Node, ...], tuned: bool, path: Path
) -> ArmsFileError:
    """The first fault of a run, at the line that says it: overrides before plain values, near before far."""
    faults = error.errors(include_url=False)
    # A misspelt key is missing under its right name too; the wrong one is what stands in the file.
    fault = next((fault for fault in faults if fault["type"] == "extra_forbidden"), faults[0])
    where, said = fault["loc"], fault["msg"].removeprefix("Value error, ")
    prefixes: tuple[tuple[str, ...], ...] = ((OVERRIDES,), ()) if tuned else ((),)
    at = sources[0]
    for reach in range(len(where), 0, -1):
        places = (locate(source, (*p, *where[:reach])) for p in prefixes for source in sources)
        stands = next((place for place in places if place is not None), None)
        if stands is not None:
            at = stands
            break
    name, given = ".".join(str(part) for part in where), repr(fault["input"])
    given = given if len(given) <= LONG else f"{given[:LONG]}…"
    message = {
        "missing": f"{name} is missing",
        "extra_forbidden": f"unknown key {name!r}",
    }.get(fault["type"], f"{name} is {given}: {said[:1].lower()}{said[1:]}" if name else said)
    return ArmsFileError(path, line_of(at), f"{what}: {message}")
