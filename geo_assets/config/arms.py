"""Arms and boards, read from `arms.yaml` into frozen values; every refusal names the file and the line.

An arm is one model under one protocol. What alters its episodes is its `identity()`; the rest (label, knobs
of the machinery that runs it, how many passes are wanted) can change without repeating one.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from env_service.errors import GeoError
from geo_assets.config.arms_rules import arm_fault
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
from geo_assets.sweeps.prompts import prompt

__all__ = [
    "ARMS_FILE",
    "ArmSpec",
    "Arms",
    "ArmsFileError",
    "BoardSpec",
    "PriceSpec",
    "Runtime",
    "Sampling",
    "UnknownArm",
    "load_arms",
]

ARMS_FILE = Path(__file__).with_name("arms.yaml")

Provider = Literal["sandbox", "openai", "anthropic", "hf_router", "openai_compatible", "self_hosted"]
Protocol = Literal["tools", "json"]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=60)]
ParserName = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.-]*)?$", max_length=60)]
Revision = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]*$", max_length=100)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
# Fields of a request that are said elsewhere: an `extra` of the same name would override them unseen.
SAID_ELSEWHERE = (
    *("max_completion_tokens", "max_tokens", "messages", "model", "n", "seed", "stream", "temperature"),
    *("tools", "top_p"),
)
_SLUG = re.compile(r"[a-z0-9_]{1,60}")
LONG = 80


class UnknownArm(GeoError):
    """An arm was asked for that the profile does not have; the message names those it has."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Sampling(_Frozen):
    """How a reply is drawn.

    Attributes:
        temperature, top_p: left out of the request where nothing is said; some models refuse to be told.
        max_tokens: limit of a reply.
        extra: goes into the request body as it stands.
    """

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(gt=0)] = 4096
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    extra: dict[str, Any] = Field(default_factory=dict)

    @field_validator("extra")
    @classmethod
    def _adds_and_overrides_nothing(cls, extra: dict[str, Any]) -> dict[str, Any]:
        taken = [name for name in SAID_ELSEWHERE if name in extra]
        if taken:
            raise ValueError(f"{taken[0]} is not said in extra")
        return extra


class PriceSpec(_Frozen):
    """What a provider asks for a million tokens, in US dollars."""

    input_usd: Annotated[float, Field(ge=0)]
    output_usd: Annotated[float, Field(ge=0)]


class Runtime(_Frozen):
    """Knobs that cannot alter an episode.

    Attributes:
        workers: threads, and requests at once at most.
        timeout_s: per request.
        attempts, backoff_s: requests before an episode is left unscored, and the bound of their first pause.
        budget_usd: what the sweep may cost in all; it stops before it costs more. Needs the arm's `price`.
    """

    workers: Annotated[int, Field(ge=1, le=64)] = 4
    timeout_s: Annotated[float, Field(gt=0)] = 120.0
    attempts: Annotated[int, Field(ge=1, le=20)] = 5
    backoff_s: Annotated[float, Field(ge=0)] = 1.0
    budget_usd: Annotated[float, Field(ge=0)] | None = None


class ArmSpec(_Frozen):
    """One arm.

    Attributes:
        slug: its name in assets, folders and tables.
        label: its name for people.
        kind: reference, base, trained or policy; tables group by it.
        provider: which far end serves the model.
        model: the id asked for.
        protocol: how turns are exchanged; part of the identity, and never mixed in one pair.
        k: passes over the tasks.
        max_turns: the turn budget the harness was written for; the environment must have the same.
        sampling: how replies are drawn.
        base_url: address, for `openai_compatible` and `self_hosted`.
        weights: where the served weights must come from, if the endpoint's model list says (vLLM's does): a
            repository or a folder; by default the model, where that is a repository's name.
        revision: branch, tag or commit of the repository that a job of ours serves. What it meant when the
            sweep began is served until the sweep ends, however often it is gone on with.
        tool_parser, reasoning_parser: of the server that such a job starts; by default the model family's.
        price: for what it costs; no part of the identity.
        profiles: where the arm exists.
        runtime: operational knobs.
    """

    slug: Slug
    label: Text
    kind: Literal["reference", "base", "trained", "policy"]
    provider: Provider
    model: Text
    protocol: Protocol
    k: Annotated[int, Field(ge=1, le=64)]
    max_turns: Annotated[int, Field(ge=1, le=1000)]
    sampling: Sampling
    base_url: str = ""
    weights: str = ""
    revision: Revision = "main"
    tool_parser: ParserName = ""
    reasoning_parser: ParserName | None = None
    price: PriceSpec | None = None
    profiles: tuple[Profile, ...]
    runtime: Runtime

    @model_validator(mode="after")
    def _a_budget_needs_a_price(self) -> "ArmSpec":
        if self.runtime.budget_usd is not None and self.price is None:
            raise ValueError("runtime.budget_usd needs the arm's price")
        return self

    @property
    def by_job(self) -> bool:
        """Whether a job of ours serves the model, for as long as the sweep lasts."""
        return self.provider == "self_hosted" and not self.base_url

    def identity(self) -> dict[str, Any]:
        """What alters an episode, as JSON: two arms with equal identities play alike.

        `k` is left out, so that raising it adds passes and repeats none. The words of the protocol are in it.
        """
        own = {"slug", "provider", "model", "protocol", "max_turns", "sampling", "base_url", "weights"}
        if self.by_job:
            own |= {"revision", "tool_parser", "reasoning_parser"}
        return {**self.model_dump(mode="json", include=own), "prompt": prompt(self.protocol).version}


class BoardSpec(_Frozen):
    """A table of arms: its base, and its ladder from strong to weak."""

    label: Text
    profiles: tuple[Profile, ...]
    base: Slug
    ladder: tuple[Slug, ...]


@dataclass(frozen=True)
class Arms:
    """The arms and boards of one profile, in the order of the file."""

    profile: Profile
    arms: tuple[ArmSpec, ...]
    boards: Mapping[str, BoardSpec]

    def get(self, slug: str) -> ArmSpec:
        """The arm with that slug.

        Raises:
            UnknownArm: the profile has none; the message lists those it has.
        """
        for arm in self.arms:
            if arm.slug == slug:
                return arm
        known = ", ".join(arm.slug for arm in self.arms) or "none"
        raise UnknownArm(f"There is no arm {slug!r} in profile {self.profile}", f"It is one of: {known}")


def load_arms(profile: Profile, path: Path = ARMS_FILE) -> Arms:
    """Read and check the whole file, then keep what one profile has.

    Raises:
        ArmsFileError: broken YAML, an unknown key, provider or protocol, a repeated slug, or a board that
            names an arm its profiles do not have.
    """
    return _arms_of(text_of(path), profile, path)


@lru_cache(maxsize=8)
def _arms_of(text: str, profile: Profile, path: Path) -> Arms:
    body = mapping(compose_text(text, path), path, "the file")
    only(body, {"defaults", "boards", "arms"}, path)
    if "defaults" in body:
        mapping(body["defaults"], path, "defaults")
    arms: dict[str, ArmSpec] = {}
    lines: dict[str, int] = {}
    for node in sequence(body.get("arms"), path, "arms"):
        arm = _arm(node, body.get("defaults"), path)
        if arm.slug in arms:
            raise ArmsFileError(
                path, line_of(node), f"arm {arm.slug!r} appears twice, first on line {lines[arm.slug]}"
            )
        arms[arm.slug], lines[arm.slug] = arm, line_of(node)
    boards = _boards(body.get("boards"), arms, path)
    return Arms(
        profile=profile,
        arms=tuple(arm for arm in arms.values() if profile in arm.profiles),
        boards={name: board for name, board in boards.items() if profile in board.profiles},
    )


def _arm(node: yaml.Node, filling: yaml.Node | None, path: Path) -> ArmSpec:
    mapping(node, path, "an arm")
    own, defaults = plain(node), {} if filling is None else plain(filling)
    merged = {**defaults, **own}
    for key in ("sampling", "runtime"):
        if isinstance(defaults.get(key), dict) and isinstance(own.get(key), dict):
            merged[key] = {**defaults[key], **own[key]}
    field, why = arm_fault(merged)
    if field:
        at = _deepest((field,), node, filling)
        raise ArmsFileError(path, line_of(at), f"arm {own.get('slug', '(without slug)')!r}: {why}")
    try:
        return ArmSpec.model_validate(merged)
    except ValidationError as error:
        raise _fault(error, f"arm {own.get('slug', '(without slug)')!r}", node, filling, path) from None


def _boards(node: yaml.Node | None, arms: Mapping[str, ArmSpec], path: Path) -> dict[str, BoardSpec]:
    boards: dict[str, BoardSpec] = {}
    if node is None:
        return boards
    for name, value in mapping(node, path, "boards").items():
        fields = mapping(value, path, f"board {name!r}")
        if not _SLUG.fullmatch(name):
            problem = f"board {name!r}: the name becomes a file name, so it holds a to z, 0 to 9 and _ only"
            raise ArmsFileError(path, line_of(value), problem)
        try:
            board = BoardSpec.model_validate(plain(value))
        except ValidationError as error:
            raise _fault(error, f"board {name!r}", value, None, path) from None
        for field, slug in (("base", board.base), *(("ladder", slug) for slug in board.ladder)):
            missing = [p for p in board.profiles if slug not in arms or p not in arms[slug].profiles]
            if missing:
                problem = f"board {name!r} names arm {slug!r}, which profile {missing[0]} does not have"
                raise ArmsFileError(path, line_of(fields[field]), problem)
        if board.base not in board.ladder:
            problem = f"board {name!r} has no base arm in its ladder"
            raise ArmsFileError(path, line_of(fields["base"]), problem)
        if len(set(board.ladder)) != len(board.ladder):
            raise ArmsFileError(path, line_of(fields["ladder"]), f"board {name!r} names an arm twice")
        boards[name] = board
    return boards


def _fault(
    error: ValidationError, what: str, node: yaml.Node, filling: yaml.Node | None, path: Path
) -> ArmsFileError:
    """The first fault of an arm or a board, at the line that says it: its own, or that of the defaults."""
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"])
    at = _deepest(fault["loc"], node, filling)
    said, given = fault["msg"].removeprefix("Value error, "), repr(fault["input"])
    given = given if len(given) <= LONG else f"{given[:LONG]}…"
    message = {"missing": f"{where} is missing", "extra_forbidden": f"unknown key {where!r}"}.get(
        fault["type"], f"{where} is {given}: {said[:1].lower()}{said[1:]}"
    )
    return ArmsFileError(path, line_of(at), f"{what}: {message}")


def _deepest(where: tuple[int | str, ...], node: yaml.Node, filling: yaml.Node | None) -> yaml.Node:
    """Where a value was said. An arm's own word counts before the default of the same name."""
    for reach in range(len(where), 0, -1):
        for place in (node, filling):
            found = locate(place, where[:reach])
            if found is not None:
                return found
    return node
