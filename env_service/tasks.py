"""Task files: JSON lines, one location to guess per line.

The reader trusts nothing: it reads bounded lines, refuses NaN, coordinates off the globe, torn lines, indexes
that are not 0, 1, 2, …, and a key or a picture that stands twice, and names file and line in every refusal.
Keys it does not know are kept in `extra` and written back, so a row made elsewhere survives a round trip
unchanged.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NoReturn

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from env_service.canonical import atomic_write
from env_service.errors import GeoError

MAX_LINE_BYTES = 4 << 20
"""Longest line that is read; a real row of 24 frames takes under 10 kB."""

IMAGE_ID_PATTERN = r"^[0-9A-Za-z_-]{1,64}$"
"""What an image id may look like: it becomes a file name, so no dot and no slash."""

ImageId = Annotated[str, StringConstraints(pattern=IMAGE_ID_PATTERN)]


def _printable(text: str) -> str:
    """Names are written into logs and tables, where a line feed would begin a row of its own."""
    if _NO_SIGNS.search(text):
        raise PydanticCustomError("name", "it holds a control character")
    return text


# Control characters, line and paragraph separators.
_NO_SIGNS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
Name = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_printable)]


class DuplicateKey(ValueError):
    """A JSON object says one thing twice, so what it means is anyone's guess."""


class TaskFileError(GeoError):
    """A task file that cannot be used; `path` and `line` (1-based, or None for the whole file) say where."""

    def __init__(self, path: Path | str, line: int | None, problem: str, fix: str) -> None:
        self.path = str(path)
        self.line = line
        where = self.path if line is None else f"{self.path}:{line}"
        super().__init__(f"{where}: {problem}", fix)


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False, extra="forbid")

    extra: dict[str, Any] = Field(default_factory=dict)
    """Keys of the row that this version does not know, kept as they came."""

    @model_validator(mode="before")
    @classmethod
    def _keep_unknown(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        known = {key: value for key, value in values.items() if key in cls.model_fields}
        unknown = {key: value for key, value in values.items() if key not in cls.model_fields}
        if unknown:
            kept = known.get("extra")
            known["extra"] = {**(kept if isinstance(kept, dict) else {}), **unknown}
        return known


class Frame(_Row):
    """One captured position.

    Attributes:
        image_id: the source's id; also the file name in the store.
        lat, lon: WGS84 degrees.
        compass_angle: direction of the centre column of a panorama, degrees in [0, 360).
        captured_at: "YYYY-MM", or "" where unknown.
        is_pano: False for a single photograph.
    """

    image_id: ImageId
    lat: Annotated[float, Field(ge=-90, le=90)]
    lon: Annotated[float, Field(ge=-180, le=180)]
    compass_angle: Annotated[float, Field(ge=0, lt=360)]
    captured_at: Annotated[str, StringConstraints(pattern=r"^([0-9]{4}-(0[1-9]|1[0-2]))?$")] = ""
    is_pano: bool = True


class Task(_Row):
    """One location to guess: the frames of a drive and the truth about where it is."""

    task_index: Annotated[int, Field(ge=0)]
    task_id: Name
    country: Name
    country_code: Annotated[str, StringConstraints(pattern=r"^[A-Z]{2}$")] | None = None
    sequence_id: Name
    provider: Name
    start_frame: Annotated[int, Field(ge=0)]
    frames: Annotated[tuple[Frame, ...], Field(min_length=1, strict=False)]
    attribution: dict[str, Any] = Field(default_factory=dict)
    meta: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _start_inside(self) -> "Task":
        if self.start_frame >= len(self.frames):
            raise ValueError(f"start_frame {self.start_frame} is outside the {len(self.frames)} frames")
        return self

    @model_validator(mode="after")
    def _frames_differ(self) -> "Task":
        seen: dict[str, int] = {}
        for number, frame in enumerate(self.frames):
            first = seen.setdefault(frame.image_id, number)
            if first != number:
                raise ValueError(
                    f"image_id {frame.image_id!r} stands in the task twice, as frames {first} and {number}"
                )
        return self

    @property
    def start(self) -> Frame:
        """The frame at which an episode opens; its position is the truth."""
        return self.frames[self.start_frame]


def read_tasks(path: Path | str) -> tuple[Task, ...]:
    """Load and check a whole task file.

    Blank lines are skipped. The file may end without a newline if its last line is complete.

    Raises:
        TaskFileError: names file, line, what is wrong and what to do.
    """
    source = Path(path)
    try:
        with source.open("rb") as stream:
            tasks = tuple(_parse(source, stream))
    except FileNotFoundError as error:
        raise TaskFileError(source, None, "there is no such task file", "Check the path.") from error
    except OSError as error:
        raise TaskFileError(
            source, None, f"the task file cannot be read ({error.strerror})", "Check the path and its rights."
        ) from error
    if not tasks:
        raise TaskFileError(source, None, "the task file holds no task", "Build it again.")
    return tasks


def write_tasks(path: Path | str, tasks: Sequence[Task]) -> None:
    """Write a task file in one step: a reader sees the old file or the new one, never half.

    Raises:
        TaskFileError: the tasks break a rule of the file (see `validate`).
        OSError: the disk is full or the folder cannot be written; an existing file stays as it was.
    """
    validate(tasks, path)
    lines = [json.dumps(task_row(task), allow_nan=False) for task in tasks]
    atomic_write(path, "".join(f"{line}\n" for line in lines).encode("ascii"))


def task_row(task: Task) -> dict[str, Any]:
    """The task as a JSON object in the key order of the file; `country_code` is left out if unknown."""
    row: dict[str, Any] = {
        "task_index": task.task_index,
        "task_id": task.task_id,
        "country": task.country,
    }
    if task.country_code is not None:
        row["country_code"] = task.country_code
    row |= {
        "sequence_id": task.sequence_id,
        "provider": task.provider,
        "start_frame": task.start_frame,
        "frames": [_frame_row(frame) for frame in task.frames],
        "attribution": task.attribution,
        "meta": task.meta,
    }
    return row | task.extra


def validate(tasks: Iterable[Task], path: Path | str = "tasks") -> None:
    """Check the rules between rows: indexes run 0, 1, 2, … in file order and task ids are unique.

    Args:
        tasks: rows in file order; entry i is taken to stand on line i + 1.
        path: the file named in a refusal.

    Raises:
        TaskFileError: the first row that breaks a rule.
    """
    checker = _Between(Path(path))
    for line, task in enumerate(tasks, start=1):
        checker.see(line, task)


class _Between:
    """What must hold between rows, checked as they pass."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index_lines: dict[int, int] = {}
        self.id_lines: dict[str, int] = {}

    def see(self, line: int, task: Task) -> None:
        index, expected = task.task_index, len(self.index_lines)
        if index in self.index_lines:
            self._refuse(line, f"task_index {index} appears twice, first on line {self.index_lines[index]}")
        if index != expected:
            self._refuse(line, f"task_index is {index} where {expected} must follow")
        if task.task_id in self.id_lines:
            first = self.id_lines[task.task_id]
            self._refuse(line, f"task_id {task.task_id!r} appears twice, first on line {first}")
        self.index_lines[index] = line
        self.id_lines[task.task_id] = line

    def _refuse(self, line: int, problem: str) -> NoReturn:
        raise TaskFileError(
            self.path, line, problem, "Number the rows 0, 1, 2, … with one id each, or build the file again."
        )


def _frame_row(frame: Frame) -> dict[str, Any]:
    known = frame.model_dump(exclude={"extra"})
    return known | frame.extra


def _parse(path: Path, stream: BinaryIO) -> Iterator[Task]:
    checker = _Between(path)
    line = 0
    # readline(limit) never holds more than the limit, however long the line is.
    while raw := stream.readline(MAX_LINE_BYTES + 1):
        line += 1
        if len(raw) > MAX_LINE_BYTES:
            raise TaskFileError(
                path,
                line,
                f"the line is longer than {MAX_LINE_BYTES:,} bytes",
                "This is no task file, or it is damaged: build it again.",
            )
        if not raw.strip():
            continue
        task = _parse_line(path, line, raw)
        checker.see(line, task)
        yield task


def _parse_line(path: Path, line: int, raw: bytes) -> Task:
    try:
        text = raw.decode("utf-8-sig" if line == 1 else "utf-8")
        row = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=distinct_keys)
    except UnicodeDecodeError as error:
        raise TaskFileError(
            path, line, f"byte {error.start + 1} of the line is not UTF-8", "Save the file as UTF-8."
        ) from error
    except DuplicateKey as error:
        raise TaskFileError(path, line, str(error), "Correct the row or build it again.") from error
    except (ValueError, RecursionError) as error:
        if not raw.endswith(b"\n"):
            problem = "the last line is torn: the file was cut while it was written"
            raise TaskFileError(path, line, problem, "Build the file again or remove the line.") from error
        reason = "it is nested too deep" if isinstance(error, RecursionError) else _short(str(error))
        problem = f"this is not a JSON object: {reason}"
        raise TaskFileError(path, line, problem, "Correct the line.") from error
    if not isinstance(row, dict):
        raise TaskFileError(
            path, line, f"this is a JSON {type(row).__name__}, not an object", "Correct the line."
        )
    try:
        return Task.model_validate(row)
    except ValidationError as error:
        raise TaskFileError(path, line, _first_fault(error), "Correct the row or build it again.") from error


def distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An `object_pairs_hook` for `json.loads` under which no key of an object may stand twice.

    Raises:
        DuplicateKey: one does.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        seen = set[str]()
        for key, _ in pairs:
            if key in seen:
                raise DuplicateKey(f"the key {_short(repr(key))} stands in one object twice")
            seen.add(key)
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number a task may hold")


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"]) or "the row"
    if fault["type"] == "missing":
        return f"{where} is missing"
    message = re.sub(r"^Value error, ", "", fault["msg"])
    if fault["type"] == "value_error":
        return message
    return f"{where} is {_short(repr(fault['input']))}: {message[:1].lower()}{message[1:]}"


def _short(text: str, limit: int = 120) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"
