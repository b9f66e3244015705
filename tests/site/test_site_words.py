"""What a model wrote as arguments of a call is shown, whatever it is, and never ends the page."""

import json

import pytest
from reports_lab import episode
from sweeps_lab import lab_arm

from geo_assets.reports.site.episodes import StepView, _step
from geo_assets.sweeps.records import EpisodeRecord

DEEP = '{"heading": ' + "[" * 4000


def step(arguments: str) -> StepView:
    """The step of a call with these arguments, read back from its line as the page reads it."""
    record = episode(lab_arm("noisy_oracle", k=1), 0, 0, 10.0, 0.1, "e", "h")
    turn = record.turns[0].model_copy(update={"tool": "look", "arguments": arguments})
    line = record.model_copy(update={"turns": (turn,)}).line()
    return _step(EpisodeRecord.model_validate_json(line).turns[0], None, "")


@pytest.mark.parametrize(
    "arguments",
    [
        DEEP,
        '{"heading": ' + "[" * 4000 + "]" * 4000 + "}",
        '{"n": ' + "9" * 5000 + "}",
        "[1, 2]",
        '{"heading": 9',
    ],
)
def test_arguments_that_cannot_be_read_are_shown_as_they_were_written(arguments: str) -> None:
    shown = step(arguments)
    assert (shown.arguments, shown.raw) == ((), arguments[:6000] + (" …" if len(arguments) > 6000 else ""))


@pytest.mark.parametrize("depth", range(900, 1000))
def test_arguments_of_every_depth_are_shown(depth: int) -> None:
    shown = step('{"heading": ' + "[" * depth + "]" * depth + "}")
    assert shown.arguments or shown.raw


@pytest.mark.parametrize("said", [{"\ud800": 1}, {"place": "\udc00x"}, {"place": ["\ud800"]}])
def test_half_a_character_can_be_written(said: dict[str, object]) -> None:
    shown = step(json.dumps(said))
    assert "\\ud" in f"{shown.arguments}{shown.alt}".encode().decode()
