"""What travels between an agent and the environment: one flat action, one observation, one state.

Plain Pydantic, so that a client (a GPU job, a notebook) needs neither the server nor OpenEnv. The argument
types below are also the annotations of the environment's tools: a bound written here is the bound in
`/schema`, over `/ws` and over MCP.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_LABEL = 200
MAX_REASONING = 20_000
MAX_RESPONSE = 100_000
MAX_EPISODE_ID = 255

# Argument types. JSON has no NaN and no infinity, and neither have these.
Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]
Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]
Heading = Annotated[float, Field(ge=-3600, le=3600, allow_inf_nan=False)]
Turn = Annotated[float, Field(ge=-360, le=360, allow_inf_nan=False)]
Pitch = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]
FieldOfView = Annotated[float, Field(ge=10, le=120, allow_inf_nan=False)]
Meters = Annotated[float, Field(gt=0, le=1000, allow_inf_nan=False)]
Span = Annotated[float, Field(ge=0.02, le=180, allow_inf_nan=False)]
Label = Annotated[str, Field(max_length=MAX_LABEL)]
CountryName = Annotated[str, Field(max_length=MAX_LABEL)]
Confidence = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Reasoning = Annotated[str, Field(max_length=MAX_REASONING)]
Response = Annotated[str, Field(max_length=MAX_RESPONSE)]
Direction = Literal["forward", "backward"]
ImageKind = Literal["view", "map", "none"]
Mode = Literal["agentic", "nmpz", "single_shot"]

Op = Literal[
    "look",
    "pan",
    "zoom",
    "move",
    "pin",
    "view_map",
    "reverse_geocode",
    "list_pins",
    "clear_pins",
    "measure",
    "guess",
]

_POINT = frozenset({"lat", "lon"})
_OPINION = frozenset({"country", "confidence", "reasoning"})

# op -> (fields it must have, fields it may have). A guess has coordinates or a raw reply; see `GeoAction`.
OP_FIELDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "look": (frozenset({"heading_deg"}), frozenset({"pitch_deg", "fov_deg"})),
    "pan": (frozenset({"delta_deg"}), frozenset()),
    "zoom": (frozenset({"fov_deg"}), frozenset()),
    "move": (frozenset({"direction"}), frozenset({"meters"})),
    "pin": (_POINT | {"label"}, frozenset({"span_deg"})),
    "view_map": (_POINT, frozenset({"span_deg"})),
    "reverse_geocode": (_POINT, frozenset()),
    "list_pins": (frozenset(), frozenset()),
    "clear_pins": (frozenset(), frozenset()),
    "measure": (frozenset({"lat_a", "lon_a", "lat_b", "lon_b"}), frozenset()),
    "guess": (frozenset(), _POINT | _OPINION | {"response"}),
}


class GeoAction(BaseModel):
    """One call of one tool: `op` and the fields of that op, nothing else.

    The server does not use this class to judge a call (it derives that from the environment's own methods);
    it is what a Python client types, and it refuses on the client's side what the server would refuse.

    Raises:
        pydantic.ValidationError: unknown op, unknown or missing field, a value out of range or of another
            type (true and "1" are no numbers), NaN or infinity.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    op: Op
    heading_deg: Heading | None = None
    pitch_deg: Pitch | None = None
    fov_deg: FieldOfView | None = None
    delta_deg: Turn | None = None
    direction: Direction | None = None
    meters: Meters | None = None
    lat: Latitude | None = None
    lon: Longitude | None = None
    label: Label | None = None
    span_deg: Span | None = None
    lat_a: Latitude | None = None
    lon_a: Longitude | None = None
    lat_b: Latitude | None = None
    lon_b: Longitude | None = None
    response: Response | None = None
    country: CountryName | None = None
    confidence: Confidence | None = None
    reasoning: Reasoning | None = None

    @model_validator(mode="after")
    def _only_the_fields_of_the_op(self) -> Self:
        must, may = OP_FIELDS[self.op]
        given = self.model_dump(exclude_none=True).keys() - {"op"}
        if missing := sorted(must - given):
            raise ValueError(f"{self.op} needs {', '.join(missing)}")
        if surplus := sorted(given - must - may):
            raise ValueError(f"{self.op} takes no {', '.join(surplus)}")
        if self.op == "guess" and self.response is None and not given >= _POINT:
            raise ValueError("guess needs lat and lon, or response")
        return self

    def wire(self) -> dict[str, Any]:
        """The flat JSON object that goes over the wire: `op` and the fields that were given."""
        return self.model_dump(exclude_none=True)


class Pin(BaseModel):
    """One candidate on the agent's map. `description` says what is there, never how good the candidate is."""

    model_config = ConfigDict(frozen=True)

    index: int = Field(description="Number of the pin, from 1, in the order of placing")
    lat: float = Field(description="Latitude in degrees")
    lon: float = Field(description="Longitude in degrees")
    label: str = Field(description="The agent's own words for it")
    description: str = Field(description="What is there: country, subregion, nearest city")


class GeoObservation(BaseModel):
    """What the agent sees after a reset or a call.

    Before the end nothing here depends on the place except the picture (and the capture month, a fair clue);
    `distance_km`, `score`, `true_lat`, `true_lon` and `parsed_ok` are null until then.
    """

    model_config = ConfigDict(extra="ignore")

    done: bool = Field(default=False, description="The episode is over")
    reward: float | None = Field(
        default=None, description="Null after reset, 0 during play, final at the end"
    )
    metadata: dict[str, Any] = Field(
        default_factory=dict, description="For the harness, never for the model: where the episode stands"
    )
    prompt: str = Field(default="", description="The task in words; given with the opening picture only")
    image_base64: str = Field(default="", description="JPEG (view) or PNG (map), base64; empty when none")
    image_kind: ImageKind = Field(default="none", description="What the picture is")
    heading_deg: float = Field(default=0.0, description="Camera heading, clockwise from true north, [0, 360)")
    pitch_deg: float = Field(default=0.0, description="Camera pitch, positive up")
    fov_deg: float = Field(default=90.0, description="Horizontal field of view")
    moved_meters: float = Field(default=0.0, description="Distance really travelled by this call")
    total_moved_meters: float = Field(default=0.0, description="Distance travelled so far")
    can_move_forward: bool = Field(default=False, description="A captured frame lies ahead along the drive")
    can_move_backward: bool = Field(default=False, description="A captured frame lies behind along the drive")
    available_tools: list[str] = Field(default_factory=list, description="Tools that work in this episode")
    steps_remaining: int = Field(default=0, description="Turns left; every call spends one")
    pins: list[Pin] = Field(default_factory=list, description="Candidates placed so far")
    feedback: str = Field(default="", description="What the call did, or what was wrong with it")
    captured_at: str = Field(default="", description="Month the picture was taken, YYYY-MM")
    action_cost: float = Field(default=0.0, description="Cost of the calls so far")
    distance_km: float | None = Field(default=None, description="After the guess: how far off, kilometres")
    score: float | None = Field(default=None, description="After the guess: score before cost")
    true_lat: float | None = Field(default=None, description="After the end: true latitude")
    true_lon: float | None = Field(default=None, description="After the end: true longitude")
    parsed_ok: bool | None = Field(default=None, description="After the guess: coordinates were understood")


class GeoState(BaseModel):
    """Where the session stands, for the caller of `reset` (there is no such route for an agent).

    `task_index` reports which task was chosen, by `index` or by `seed`; it says nothing about the place.
    """

    model_config = ConfigDict(extra="ignore")

    episode_id: str | None = Field(default=None, description="Given at reset, or random")
    step_count: int = Field(default=0, ge=0, description="Turns spent")
    split: str | None = Field(default=None, description="Split of the task")
    task_index: int | None = Field(default=None, description="Address of the task within its split")
    mode: str = Field(default="agentic", description="agentic, nmpz or single_shot")
    max_turns: int = Field(default=0, description="Turns of an episode")
    steps_remaining: int = Field(default=0, description="Turns left")
    action_cost: float = Field(default=0.0, description="Cost of the calls so far")
    done: bool = Field(default=False, description="The episode is over")
    outcome: str | None = Field(default=None, description="guess, parse_failure or no_guess, once over")
    environment_version: str = Field(default="", description="Version of the environment that plays")
