"""A recorded world of small pictures, steps of the mirror in processes of their own, an instance on AWS.

The pictures are noise of a few kilobytes, so that moving them costs little and what is tested is who fetches
what, when, and what a kill leaves.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from env_service.tasks import Task, write_tasks
from env_service.views import encode_jpeg
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.data._source import SANDBOX_TOKEN, SERVER
from geo_assets.lineage.assets import AssetFolder, Stage
from geo_assets.lineage.versions import content_version
from resources.processes import ServerProcess
from resources.sandbox.recorded import COPIED_FIELDS

REPOSITORY = Path(__file__).resolve().parents[2]
FRAMES = 4
MISSING = "9000003"
"""An image whose picture was never recorded: its frame leaves its task."""
WORKER = """
import sys
import time
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.data.mirrored_panoramas import mirror_shard
from geo_assets.lineage.assets import Stage, StageRun
settings = load_settings()
run = StageRun(Stage(settings, stage_specs(settings.profile)), "mirrored_panoramas", lambda text: None)
print(mirror_shard(run, int(sys.argv[1])))
"""


def make_world(folder: Path, tasks: int) -> list[Task]:
    """Record `tasks` drives of `FRAMES` pictures each into a folder that the recorded profile serves."""
    (folder / "panos").mkdir(parents=True)
    rows, made = [], []
    for number in range(tasks):
        frames = []
        for place in range(FRAMES):
            name = str(9_000_000 + FRAMES * number + place)
            lat, lon = 50.0 + 0.02 * number, 4.0 + 1e-4 * place
            row = dict.fromkeys(COPIED_FIELDS)
            rows.append(row | {"image_id": name, "sequence_id": f"s{number}", "sequence_index": place}
                        | {"lat": lat, "lon": lon, "creator_id": "c1", "is_pano": True})  # fmt: skip
            frames.append({"image_id": name, "lat": lat, "lon": lon, "compass_angle": 10.0 * place,
                           "captured_at": "2022-04", "is_pano": True})  # fmt: skip
            if name != MISSING:
                (folder / "panos" / f"{name}.jpg").write_bytes(_noise(int(name)))
        made.append(_task(number, frames))
    schema = {"image_id": pa.string(), "sequence_id": pa.string(), "sequence_index": pa.int64()}
    table = pa.Table.from_pylist(rows)
    pq.write_table(table.cast(pa.schema([(f.name, schema.get(f.name, f.type)) for f in table.schema])),
                   folder / "frames.parquet")  # fmt: skip
    return made


def _noise(seed: int) -> bytes:
    rough = np.random.default_rng(seed).integers(0, 256, (16, 32, 3), dtype=np.uint8)
    return encode_jpeg(np.ascontiguousarray(rough.repeat(8, axis=0).repeat(8, axis=1)))


def _task(number: int, frames: list[dict[str, object]]) -> Task:
    return Task.model_validate(
        {
            "task_index": number,
            "task_id": f"pool-{number:05d}",
            "country": "Belgium",
            "country_code": "BE",
            "sequence_id": f"s{number}",
            "provider": "mapillary",
            "start_frame": FRAMES // 2,
            "frames": frames,
            "attribution": {"licence": "CC-BY-SA-4.0"},
            "meta": {},
        }
    )


class World:
    """The recorded world, served: what homes ask, and what has been asked of it.

    Attributes:
        pictures: how many there are.
    """

    def __init__(self, folder: Path, tasks: list[Task], url: str, log: Path) -> None:
        self._folder, self._tasks, self._url, self._log = folder, tasks, url, log
        self.pictures = len(list((folder / "panos").glob("*.jpg")))

    def home(self, home: Path, store_url: str = "") -> dict[str, str]:
        """Publish the pool in a home; the variables of a process that mirrors there."""
        variables = {
            "GEO_PROFILE": "recorded",
            "GEO_RECORDED": str(self._folder),
            "GEO_HOME": str(home),
            "MAPILLARY_GRAPH_URL": self._url,
            "MAPILLARY_ACCESS_TOKEN": SANDBOX_TOKEN,
            **({"GEO_STORE_URL": store_url} if store_url else {}),
        }
        pool = AssetFolder(home, "task_pool")
        path = pool.file("tasks.jsonl")
        write_tasks(path, self._tasks)
        pool.publish(content_version(path.read_text()), {"tasks": len(self._tasks)})
        return variables

    def fetched(self) -> Counter[str]:
        """How often each picture has been asked for by its link since the last call."""
        rows = [json.loads(line) for line in self._log.read_text().splitlines()]
        self._log.write_text("")
        paths = [Path(row["path"]).parts for row in rows if row["status"] == 200]
        return Counter(parts[2] for parts in paths if parts[1] == "img")


@contextmanager
def world(folder: Path, tasks: int) -> Iterator[World]:
    """A recorded world behind a real server that writes down every request."""
    made = make_world(folder / "recorded", tasks)
    log = folder / "requests.jsonl"
    log.write_text("")
    arguments = ["--recorded", str(folder / "recorded"), "--request-log", str(log)]
    with ServerProcess(SERVER, arguments, name="recorded Mapillary") as server:
        yield World(folder / "recorded", made, server.url, log)


def stage_of(variables: Mapping[str, str]) -> Stage:
    """The stage that a process with these variables works in."""
    settings = load_settings(dict(variables))
    return Stage(settings, stage_specs(settings.profile))


def start_shard(variables: Mapping[str, str], shard: int, **more: str) -> "subprocess.Popen[str]":
    """One shard of the mirror in a process of its own, in a group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(shard)],
        cwd=REPOSITORY,
        env={**os.environ, **variables, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def instance_home(folder: Path) -> Path:
    """A `DAGSTER_HOME` with the instance of AWS in it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(REPOSITORY / "deploy" / "dagster-aws.yaml", folder / "dagster.yaml")
    return folder


def wait_for_lines(log: Path, lines: int, writer: "subprocess.Popen[str]") -> None:
    """Until a shard's log holds so many entries.

    Raises:
        AssertionError: its writer left before.
    """
    while not log.exists() or log.read_bytes().count(b"\n") <= lines:
        assert writer.poll() is None, writer.communicate()
        time.sleep(0.005)
