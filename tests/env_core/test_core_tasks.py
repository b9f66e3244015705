"""Task files: published rows survive unchanged, poisoned files are refused by line."""

import json
from pathlib import Path

import pytest

from env_service.tasks import (
    MAX_LINE_BYTES,
    Frame,
    Task,
    TaskFileError,
    read_tasks,
    task_row,
    validate,
    write_tasks,
)


def row(index: int = 0, **changes):
    frame = {
        "image_id": f"{index}1", "lat": 50.83, "lon": 4.32, "compass_angle": 126.27, "captured_at": "2022-04",
        "is_pano": True,
    }  # fmt: skip
    base = {
        "task_index": index, "task_id": f"eval-{index:05d}", "country": "Belgium", "country_code": "BE",
        "sequence_id": "s1", "provider": "mapillary", "start_frame": 0, "frames": [frame],
        "attribution": {"licence": "CC-BY-SA-4.0"}, "meta": {"quality_score": 0.9},
    }  # fmt: skip
    frame_changes = changes.pop("frame", {})
    base |= changes
    frame |= frame_changes
    return base


def put(path: Path, *rows) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    return path


def test_published_rows_round_trip_byte_for_byte(tmp_path, shared):
    source = shared / "reference" / "published_task_rows.jsonl"
    tasks = read_tasks(source)
    assert [task.task_index for task in tasks] == [0, 1, 2, 3]
    assert tasks[0].country_code is None
    write_tasks(tmp_path / "copy.jsonl", tasks)
    assert (tmp_path / "copy.jsonl").read_bytes() == source.read_bytes()


def test_unknown_keys_are_kept_at_both_levels(tmp_path):
    path = put(tmp_path / "t.jsonl", row(density=3, frame={"altitude": 12.5}))
    (task,) = read_tasks(path)
    assert task.extra == {"density": 3}
    assert task.frames[0].extra == {"altitude": 12.5}
    assert task_row(task) == row(density=3, frame={"altitude": 12.5})


@pytest.mark.parametrize("key", ["task_id", "country", "sequence_id", "provider"])
@pytest.mark.parametrize("sign", ["\n", "\r", "\x00", "\x1b", "\x7f", "\x85", "\u2028"])
def test_a_name_with_a_control_character_is_refused_by_line(tmp_path, key, sign):
    path = put(tmp_path / "nl.jsonl", row(), row(1, **{key: f"eval{sign}00000"}))
    with pytest.raises(
        TaskFileError, match=rf"nl.jsonl:2: {key} is .*: it holds a control character"
    ) as caught:
        read_tasks(path)
    assert sign not in str(caught.value)


def test_a_name_may_have_any_letters(tmp_path):
    assert read_tasks(put(tmp_path / "t.jsonl", row(country="Côte d\u2019Ivoire \U0001f1e8")))


def test_key_order_of_a_row():
    task = Task.model_validate(row())
    assert list(task_row(task)) == [
        "task_index", "task_id", "country", "country_code", "sequence_id", "provider", "start_frame",
        "frames",
        "attribution", "meta",
    ]  # fmt: skip
    assert list(task_row(task)["frames"][0]) == [
        "image_id", "lat", "lon", "compass_angle", "captured_at", "is_pano",
    ]  # fmt: skip


def test_tasks_are_built_from_parts_and_frozen():
    frame = Frame(image_id="1", lat=1, lon=2, compass_angle=0)
    task = Task(
        task_index=0, task_id="a", country="X", sequence_id="s", provider="p", start_frame=0, frames=(frame,)
    )
    assert task.start is frame
    with pytest.raises(ValueError, match="frozen"):
        task.country = "Y"


POISONED = {
    "NaN": (lambda r: json.dumps(r | {"frames": [r["frames"][0] | {"lat": float("nan")}]}), "NaN"),
    "infinite": (lambda r: json.dumps(r).replace("50.83", "1e999"), "frames.0.lat"),
    "lat 91": (lambda r: json.dumps(row(1, frame={"lat": 91})), "frames.0.lat is 91"),
    "lon -181": (lambda r: json.dumps(row(1, frame={"lon": -181})), "frames.0.lon"),
    "text lat": (lambda r: json.dumps(row(1, frame={"lat": "50.8"})), "frames.0.lat"),
    "heading 360": (lambda r: json.dumps(row(1, frame={"compass_angle": 360.0})), "compass_angle is 360"),
    "heading -1": (lambda r: json.dumps(row(1, frame={"compass_angle": -1})), "compass_angle"),
    "path id": (lambda r: json.dumps(row(1, frame={"image_id": "../x"})), "image_id"),
    "bad month": (lambda r: json.dumps(row(1, frame={"captured_at": "2022-13"})), "captured_at"),
    "duplicate": (lambda r: json.dumps(row(0) | {"task_id": "other"}), "task_index 0 appears twice"),
    "gap": (lambda r: json.dumps(row(2)), "task_index is 2 where 1 must follow"),
    "same id": (lambda r: json.dumps(row(1, task_id="eval-00000")), "appears twice, first on line 1"),
    "no frames": (lambda r: json.dumps(row(1, frames=[])), "frames"),
    "start": (lambda r: json.dumps(row(1, start_frame=1)), "start_frame 1 is outside"),
    "missing key": (lambda r: json.dumps({k: v for k, v in r.items() if k != "sequence_id"}), "is missing"),
    "same picture": (
        lambda r: json.dumps(r | {"frames": r["frames"] * 2}),
        "image_id '11' stands in the task twice, as frames 0 and 1",
    ),
    "key twice": (
        lambda r: json.dumps(r).replace('"country":', '"country": "France", "country":'),
        "the key 'country' stands in one object twice",
    ),
    "key of a frame twice": (
        lambda r: json.dumps(r).replace('"lat":', '"lat": 1.0, "lat":'),
        "the key 'lat'",
    ),
    "unknown key twice": (lambda r: json.dumps(r).replace("{", '{"x": 1, "x": 1, ', 1), "the key 'x'"),
    "array": (lambda r: "[1, 2]", "JSON list"),
    "not JSON": (lambda r: "hello", "not a JSON object"),
    "deep": (lambda r: "[" * 100_000, "not a JSON object"),
}


@pytest.mark.parametrize("name", POISONED)
def test_poisoned_rows_name_file_and_line(tmp_path, name):
    make, what = POISONED[name]
    path = tmp_path / "eval.jsonl"
    path.write_text(json.dumps(row()) + "\n" + make(row(1)) + "\n", "utf-8")
    with pytest.raises(TaskFileError) as caught:
        read_tasks(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert what in str(caught.value)
    assert caught.value.fix
    assert caught.value.line == 2


def test_a_torn_last_line(tmp_path):
    path = put(tmp_path / "t.jsonl", row(), row(1))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TaskFileError, match="2: the last line is torn"):
        read_tasks(path)


def test_a_complete_last_line_needs_no_newline_and_blank_lines_do_no_harm(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text(f"{json.dumps(row())}\n\n{json.dumps(row(1))}", "utf-8")
    assert len(read_tasks(path)) == 2


def test_a_gigabyte_on_one_line_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "t.jsonl"
    with path.open("wb") as stream:
        stream.write(json.dumps(row()).encode() + b"\n")
        stream.truncate(1 << 30)
    with pytest.raises(TaskFileError, match=f"2: the line is longer than {MAX_LINE_BYTES:,} bytes"):
        read_tasks(path)


def test_bytes_that_are_not_utf8(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(
        json.dumps(row()).replace("Belgium", "B\xe9lgium").encode("latin-1").replace(b"\\u00e9", b"\xe9")
    )
    with pytest.raises(TaskFileError, match=r"1: byte .* is not UTF-8"):
        read_tasks(path)


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_file(tmp_path, content):
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    with pytest.raises(TaskFileError, match="holds no task"):
        read_tasks(path)


def test_an_absent_file_and_a_folder(tmp_path):
    with pytest.raises(TaskFileError, match="no such task file"):
        read_tasks(tmp_path / "none.jsonl")
    with pytest.raises(TaskFileError, match="cannot be read"):
        read_tasks(tmp_path)


def test_writing_checks_the_rows_and_leaves_the_old_file_alone(tmp_path):
    path = put(tmp_path / "t.jsonl", row())
    before = path.read_bytes()
    tasks = (Task.model_validate(row()), Task.model_validate(row(2)))
    with pytest.raises(TaskFileError, match="2: task_index is 2"):
        write_tasks(path, tasks)
    assert path.read_bytes() == before
    assert validate(tasks[:1]) is None
