"""Tools derived from methods, and the client's action model against them."""

import json

import pytest
from pydantic import ValidationError

from env_service.environment import GeoGuessrEnvironment
from env_service.models import OP_FIELDS, GeoAction, Heading
from env_service.server.app import schema
from env_service.toolbox import InvalidAction, action_schema, listed, resolve, tool, tool_specs

TABLE = {
    "look": ("look", 0.01),
    "pan": ("pan", 0.01),
    "zoom": ("zoom", 0.01),
    "move": ("move", 0.05),
    "place_pin": ("pin", 0.02),
    "view_map": ("view_map", 0.01),
    "reverse_geocode": ("reverse_geocode", 0.01),
    "list_pins": ("list_pins", 0.0),
    "clear_pins": ("clear_pins", 0.0),
    "measure": ("measure", 0.0),
    "submit_guess": ("guess", 0.0),
}


def test_the_eleven_tools_have_the_published_names_ops_and_costs() -> None:
    specs = listed(tool_specs(GeoGuessrEnvironment))
    assert {spec.name: (spec.op, spec.cost) for spec in specs} == TABLE
    assert [spec.name for spec in specs] == list(TABLE)


def test_schema_describes_every_argument_and_is_plain_json() -> None:
    document = json.loads(json.dumps(schema(GeoGuessrEnvironment)))
    assert set(document) == {"action", "observation", "state", "tools"}
    for entry in document["tools"]:
        assert entry["description"]
        for argument in entry["parameters"]["properties"].values():
            assert argument["description"] and "anyOf" not in argument
    guess = document["tools"][-1]["parameters"]
    assert guess["required"] == ["lat", "lon"] and "response" not in guess["properties"]
    assert guess["properties"]["lat"]["maximum"] == 90
    assert "response" in document["action"]["properties"]
    assert document["action"]["additionalProperties"] is False


def test_the_clients_action_model_has_the_fields_of_the_tools() -> None:
    specs = tool_specs(GeoGuessrEnvironment)
    derived: dict[str, set[str]] = {}
    for spec in specs:
        derived.setdefault(spec.op, set()).update(spec.parameters["properties"])
    assert derived == {op: set(must | may) for op, (must, may) in OP_FIELDS.items()}
    for spec in listed(specs):
        if spec.op != "guess":
            assert set(spec.parameters["required"]) == OP_FIELDS[spec.op][0]
    fields = set(action_schema(specs)["properties"])
    assert fields == set(GeoAction.model_fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"op": "fly"},
        {"op": "look"},
        {"op": "look", "heading_deg": 10, "lat": 1},
        {"op": "look", "heading_deg": float("nan")},
        {"op": "look", "heading_deg": float("inf")},
        {"op": "guess", "lat": 91, "lon": 0},
        {"op": "guess", "lat": 1},
        {"op": "pin", "lat": 1, "lon": 1, "label": "x" * 201},
        {"op": "zoom", "fov_deg": 9},
        {"op": "list_pins", "surprise": 1},
        {"op": "guess", "lat": True, "lon": 0},
        {"op": "guess", "lat": "1", "lon": 0},
        {"op": "guess", "lat": 1, "lon": 1, "confidence": False},
        {"op": "pin", "lat": 1, "lon": 1, "label": 7},
    ],
)
def test_the_action_model_refuses_what_the_server_would(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        GeoAction.model_validate(fields)


def test_an_action_goes_over_the_wire_with_its_own_fields_only() -> None:
    assert GeoAction(op="look", heading_deg=10).wire() == {"op": "look", "heading_deg": 10.0}
    assert GeoAction(op="guess", response="somewhere").wire() == {"op": "guess", "response": "somewhere"}


class Telescope(GeoGuessrEnvironment):
    """A subclass with one tool more and one less."""

    pan = None  # type: ignore[assignment]

    @tool(op="stars", cost=0.5, needs=("look",))
    def stars(self, heading_deg: Heading, names: str | None = None) -> str:
        """Look at the stars.

        The second paragraph counts too.

        Args:
            heading_deg: where to look,
                in degrees.
            names: which ones.
        """
        return f"{heading_deg} {names}"


def test_a_subclass_adds_and_removes_tools() -> None:
    specs = {spec.name: spec for spec in tool_specs(Telescope)}
    assert "pan" not in specs and list(specs)[-1] == "stars"
    stars = specs["stars"]
    assert stars.description == "Look at the stars. The second paragraph counts too."
    assert stars.parameters["required"] == ["heading_deg"]
    assert stars.parameters["properties"]["heading_deg"]["description"] == "where to look, in degrees."
    assert stars.parameters["properties"]["names"] == {"type": "string", "description": "which ones."}
    assert stars.bind({"heading_deg": 5, "names": None}) == {"heading_deg": 5.0}


def test_faults_are_named_without_repeating_the_input() -> None:
    specs = tool_specs(GeoGuessrEnvironment)
    secret = "hostile-input-" * 10
    for fields in ({"heading_deg": secret}, {"heading_deg": 10**4000}, {secret: 1, "heading_deg": 1}):
        with pytest.raises(InvalidAction) as caught:
            resolve(specs, "look", fields).bind(fields)
        assert "look" in str(caught.value) and len(str(caught.value)) < 300
        assert secret not in str(caught.value)
    with pytest.raises(InvalidAction, match="no such op"):
        resolve(specs, ["look"], {})


def test_what_a_model_is_shown_of_an_argument_is_pinned() -> None:
    """A library writes these schemas and is no input of an environment's version: it must not alter them."""
    shown = {
        f"{spec.name}.{name}": {key: value for key, value in schema.items() if key != "description"}
        for spec in tool_specs(GeoGuessrEnvironment)
        for name, schema in spec.parameters["properties"].items()
        if spec.name in ("look", "move", "place_pin", "submit_guess")
    }
    point = {
        "lat": {"type": "number", "minimum": -90, "maximum": 90},
        "lon": {"type": "number", "minimum": -180, "maximum": 180},
    }
    text = {"type": "string", "maxLength": 200}
    assert shown == {
        "look.heading_deg": {"type": "number", "minimum": -3600, "maximum": 3600},
        "look.pitch_deg": {"type": "number", "minimum": -90, "maximum": 90, "default": 0.0},
        "look.fov_deg": {"type": "number", "minimum": 10, "maximum": 120, "default": 90.0},
        "move.direction": {"type": "string", "enum": ["forward", "backward"]},
        "move.meters": {"type": "number", "exclusiveMinimum": 0, "maximum": 1000, "default": 10.0},
        **{f"place_pin.{name}": schema for name, schema in point.items()},
        "place_pin.label": text,
        "place_pin.span_deg": {"type": "number", "minimum": 0.02, "maximum": 180, "default": 7.0},
        **{f"submit_guess.{name}": schema for name, schema in point.items()},
        "submit_guess.country": text,
        "submit_guess.confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "submit_guess.reasoning": {"type": "string", "maxLength": 20_000},
    }


LABEL_WORDS = "must be a valid text of at most 200 characters"


@pytest.mark.parametrize(
    ("op", "fields", "words"),
    [
        ("look", {}, "heading_deg is required"),
        (
            "look",
            {"heading_deg": 1e9},
            "heading_deg must be a valid number, at least -3600 and at most 3600",
        ),
        ("look", {"heading_deg": float("nan"), "fov_deg": 5, "zoom": 1, "\u00e9" * 99: 2},
         "heading_deg must be a valid number, at least -3600 and at most 3600; "
         "fov_deg must be a valid number, at least 10 and at most 120; "
         f"zoom is not permitted; {'?' * 60} is not permitted"),
        ("move", {"direction": "up", "meters": 0}, "direction must be 'forward' or 'backward'; "
         "meters must be a valid number, above 0 and at most 1000"),
        ("pin", {"lat": 1, "lon": 2, "label": "x" * 201}, f"label {LABEL_WORDS}"),
        ("pin", {"lat": 1, "lon": 2, "label": "\ud800"}, f"label {LABEL_WORDS}"),
        ("pin", {"label": "x"}, "lat is required; lon is required"),
        ("guess", {"lat": 91, "lon": 0}, "lat must be a valid number, at least -90 and at most 90"),
        ("guess", {"lat": 1, "lon": 0, "confidence": 2},
         "confidence must be a valid number, at least 0 and at most 1"),
    ],
)  # fmt: skip
def test_the_words_for_faults_are_our_own(op: str, fields: dict[str, object], words: str) -> None:
    """To the letter, for an agent reads them: a library that words its faults anew must not change them."""
    spec = resolve(tool_specs(GeoGuessrEnvironment), op, {})
    with pytest.raises(InvalidAction) as caught:
        spec.bind(fields)
    assert str(caught.value) == f"{spec.name}: {words}"


@pytest.mark.parametrize("value", [True, False, "1", "1.0", b"1", [1], {}])
def test_a_number_is_a_number_for_every_tool(value: object) -> None:
    numbers = 0
    for spec in tool_specs(Telescope):
        for name, entry in spec.parameters["properties"].items():
            if entry["type"] == "number":
                numbers += 1
                with pytest.raises(InvalidAction, match=f"{name} must be a valid number"):
                    spec.bind({name: value})
    assert numbers > 15


def test_a_whole_number_does_for_one_with_a_fraction() -> None:
    bound = resolve(tool_specs(GeoGuessrEnvironment), "pan", {}).bind({"delta_deg": 7})
    assert bound == {"delta_deg": 7.0} and isinstance(bound["delta_deg"], float)


def test_a_tool_without_words_for_an_argument_is_a_programming_error() -> None:
    class Mute:
        @tool(op="mute")
        def mute(self, level: int) -> str:
            """Say nothing."""
            return str(level)

    class Twice:
        @tool(op="same")
        def one(self) -> str:
            """One."""
            return ""

        @tool(op="same")
        def two(self) -> str:
            """Two."""
            return ""

    for wrong in (Mute, Twice):
        with pytest.raises(TypeError):
            tool_specs(wrong)
