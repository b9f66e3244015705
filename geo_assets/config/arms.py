"""Arms and boards, read from `arms.yaml` into frozen values; every refusal names the file and the line.

An arm is one model under one protocol. What alters its episodes is its `identity()`; the rest (label, knobs
of the machinery that runs it, how many passes are wanted) can change without repeating one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from env_service.errors import GeoError
from geo_assets.config.settings import Profile

ARMS_FILE = Path(__file__).with_name("arms.yaml")

Provider = Literal["sandbox", "openai", "anthropic", "hf_router", "openai_compatible", "self_hosted"]
Protocol = Literal["tools"]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$", max_length=60)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class ArmsFileError(GeoError):
    """`arms.yaml` says something that cannot be; `path` and `line` say where."""

    def __init__(self, path: Path, line: int | None, problem: str, fix: str = "") -> None:
        self.path = path
        self.line = line
        where = path.name if line is None else f"{path.name}:{line}"
        super().__init__(f"{where}: {problem}", fix or f"Correct {path.name}")


class UnknownArm(GeoError):
    """An arm was asked for that the profile does not have; the message names those it has."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Sampling(_Frozen):
    """How a reply is drawn; `extra` goes into the request body as it stands."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    max_tokens: Annotated[int, Field(gt=0)] = 4096
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class Runtime(_Frozen):
    """Knobs that cannot alter an episode: threads, seconds per request, attempts and their first pause."""

    workers: Annotated[int, Field(ge=1, le=64)] = 4
    timeout_s: Annotated[float, Field(gt=0)] = 120.0
    attempts: Annotated[int, Field(ge=1, le=20)] = 5
    backoff_s: Annotated[float, Field(ge=0)] = 1.0


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
    profiles: tuple[Profile, ...]
    runtime: Runtime

    def identity(self) -> dict[str, Any]:
        """What alters an episode, as JSON: two arms with equal identities play alike.

        `k` is left out, so that raising it adds passes and repeats none.
        """
        return self.model_dump(
            mode="json",
            include={"slug", "provider", "model", "protocol", "max_turns", "sampling", "base_url"},
        )


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
    root = _compose(path)
    body = _mapping(root, path, "the file")
    _only(body, {"defaults", "boards", "arms"}, path)
    defaults = _plain(body["defaults"]) if "defaults" in body else {}
    if not isinstance(defaults, dict):
        raise ArmsFileError(path, _line(body["defaults"]), "defaults must be a mapping")
    arms: dict[str, ArmSpec] = {}
    lines: dict[str, int] = {}
    for node in _sequence(body.get("arms"), path, "arms"):
        arm = _arm(node, defaults, path)
        if arm.slug in arms:
            raise ArmsFileError(
                path, _line(node), f"arm {arm.slug!r} appears twice, first on line {lines[arm.slug]}"
            )
        arms[arm.slug], lines[arm.slug] = arm, _line(node)
    boards = _boards(body.get("boards"), arms, path)
    return Arms(
        profile=profile,
        arms=tuple(arm for arm in arms.values() if profile in arm.profiles),
        boards={name: board for name, board in boards.items() if profile in board.profiles},
    )


def _arm(node: yaml.Node, defaults: dict[str, Any], path: Path) -> ArmSpec:
    fields = _mapping(node, path, "an arm")
    own = {key: _plain(value) for key, value in fields.items()}
    merged = {**defaults, **own}
    for key in ("sampling", "runtime"):
        if isinstance(defaults.get(key), dict) and isinstance(own.get(key), dict):
            merged[key] = {**defaults[key], **own[key]}
    try:
        return ArmSpec.model_validate(merged)
    except ValidationError as error:
        raise _fault(error, f"arm {own.get('slug', '(without slug)')!r}", node, fields, path) from None


def _boards(node: yaml.Node | None, arms: Mapping[str, ArmSpec], path: Path) -> dict[str, BoardSpec]:
    boards: dict[str, BoardSpec] = {}
    if node is None:
        return boards
    for name, value in _mapping(node, path, "boards").items():
        fields = _mapping(value, path, f"board {name!r}")
        try:
            board = BoardSpec.model_validate(_plain(value))
        except ValidationError as error:
            raise _fault(error, f"board {name!r}", value, fields, path) from None
        for slug in (board.base, *board.ladder):
            missing = [p for p in board.profiles if slug not in arms or p not in arms[slug].profiles]
            if missing:
                problem = f"board {name!r} names arm {slug!r}, which profile {missing[0]} does not have"
                raise ArmsFileError(path, _line(fields["ladder"]), problem)
        if board.base not in board.ladder:
            raise ArmsFileError(path, _line(fields["base"]), f"board {name!r} has no base arm in its ladder")
        if len(set(board.ladder)) != len(board.ladder):
            raise ArmsFileError(path, _line(fields["ladder"]), f"board {name!r} names an arm twice")
        boards[name] = board
    return boards


def _compose(path: Path) -> yaml.Node:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArmsFileError(path, None, f"the file cannot be read ({error})") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "this is no YAML"
        raise ArmsFileError(path, mark.line + 1 if mark else None, f"broken YAML: {problem}") from None
    if root is None:
        raise ArmsFileError(path, 1, "the file is empty")
    return cast(yaml.Node, root)


def _mapping(node: yaml.Node, path: Path, what: str) -> dict[str, yaml.Node]:
    if not isinstance(node, yaml.MappingNode):
        raise ArmsFileError(path, _line(node), f"{what} must be a mapping")
    found: dict[str, yaml.Node] = {}
    for key, value in node.value:
        name = str(key.value)
        if name in found:
            raise ArmsFileError(path, _line(key), f"{what} has the key {name!r} twice")
        found[name] = value
    return found


def _sequence(node: yaml.Node | None, path: Path, what: str) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode):
        raise ArmsFileError(path, None if node is None else _line(node), f"{what} must be a list")
    return list(node.value)


def _only(found: Mapping[str, yaml.Node], known: set[str], path: Path) -> None:
    for name, node in found.items():
        if name not in known:
            problem = f"unknown key {name!r}; known are {', '.join(sorted(known))}"
            raise ArmsFileError(path, _line(node), problem)


def _fault(
    error: ValidationError, what: str, node: yaml.Node, fields: Mapping[str, yaml.Node], path: Path
) -> ArmsFileError:
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"])
    at = fields.get(str(fault["loc"][0])) if fault["loc"] else None
    message = {"missing": f"{where} is missing", "extra_forbidden": f"unknown key {where!r}"}.get(
        fault["type"], f"{where} is {fault['input']!r}: {fault['msg'][:1].lower()}{fault['msg'][1:]}"
    )
    return ArmsFileError(path, _line(at if at is not None else node), f"{what}: {message}")


def _plain(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
