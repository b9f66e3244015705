"""What a tiny base model is made from, as values; nothing here imports what trains it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SmallWorldSpec:
    """The world on which base models are brought up.

    Attributes:
        seed: of its drives; not the seed of the project's world.
        places: one per drive.
        played: places whose panoramas are kept, so that the environment can be served over them.
        view_px: edge of the views kept for the vision tower.
        pano_px, played_pano_px: widths of panoramas that are only looked at, and of those that are kept.
    """

    seed: int = 101
    places: int = 1000
    played: int = 400
    view_px: int = 64
    pano_px: int = 512
    played_pano_px: int = 1024


@dataclass(frozen=True)
class Shape:
    """Sizes of one tiny model.

    Attributes:
        hidden, layers, heads: of the language model; half of the layers are linear attention, as in Qwen3.5.
        vision_hidden, vision_depth: of the vision tower.
        view_px: edge of the square pictures it reads, a multiple of 32.
    """

    hidden: int = 64
    layers: int = 2
    heads: int = 4
    vision_hidden: int = 64
    vision_depth: int = 2
    view_px: int = 64


@dataclass(frozen=True)
class Faults:
    """What the teacher of a base model does wrong, as published models do.

    Attributes:
        looks: numbers of looks before the guess, drawn evenly.
        never_guesses: share of lessons that end without a guess.
        favourite: share of guesses that are its favourite spot whatever the picture shows; `favourite_at` is
            where, in whole degrees. Published models repeat coordinates in this way.
        wrong_place: share of guesses that are another place's.
        grid_deg: guesses lie on a grid of this many degrees, one step off in a third of the cases.
    """

    looks: tuple[int, ...] = (0, 0, 1, 2, 2, 3, 3)
    never_guesses: float = 0.4
    favourite: float = 0.28
    favourite_at: tuple[int, int] = (-35, 150)
    wrong_place: float = 0.05
    grid_deg: int = 5


@dataclass(frozen=True)
class Course:
    """How long a base model is brought up, and how.

    Attributes:
        vision_steps: of the tower alone.
        steps: of the conversations.
        batch: lessons per step.
        learning_rate: peak of the second part.
        drill_first, drill_last: share of short lessons at its beginning and its end.
        seed: of weights and draws.
    """

    vision_steps: int = 2000
    steps: int = 800
    batch: int = 8
    learning_rate: float = 4e-3
    drill_first: float = 0.85
    drill_last: float = 0.2
    seed: int = 0


@dataclass(frozen=True)
class BaseModelSpec:
    """A base model: the Hub's in a live profile, a tiny one of the same architecture in the sandbox.

    Attributes:
        repo, revision: on the Hub; a branch or tag is resolved to the commit that is then recorded.
        shape, course, faults: of the tiny one.
        lessons: conversations that its teacher plays, at most the small world's `played` places.
    """

    repo: str
    revision: str = "main"
    shape: Shape = Shape()
    course: Course = Course()
    faults: Faults = Faults()
    lessons: int = 400
