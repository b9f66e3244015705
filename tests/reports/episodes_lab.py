"""Episodes in the published form, written by hand, and the report of them."""

import json
from pathlib import Path
from typing import Any

import jsonschema

from geo_assets.reports._report_text import report_text
from geo_assets.reports.episode_report import episode_report

SCHEMA = json.loads((Path(__file__).resolve().parents[2] / "docs/schemas/report.json").read_text())


def of(*folders: Path, **options: Any) -> dict[str, Any]:
    found = episode_report(folders, **options)
    jsonschema.validate(found, SCHEMA)
    assert max(map(len, report_text(found).splitlines()), default=0) <= 80
    return json.loads(json.dumps(found, allow_nan=False))  # type: ignore[no-any-return]


def write(folder: Path, records: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "episodes.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def record(arm: str, task: int, sample: int, km: float = 100.0, **more: Any) -> dict[str, Any]:
    return {"arm": arm, "task_index": task, "sample": sample, "distance_km": km, "cost": 0.1, **more}


def whole(arm: str, tasks: int = 3, k: int = 2, **more: Any) -> list[dict[str, Any]]:
    return [
        record(arm, task, sample, 100.0 * (task + sample), **more)
        for task in range(tasks)
        for sample in range(k)
    ]


def why(found: dict[str, Any], what: str) -> str:
    return " | ".join(row["why"] for row in found["refused"] if row["what"] == what)
