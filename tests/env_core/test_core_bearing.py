"""Real panoramas, looked at along the drive: the road lies ahead. The sheet is for a person to look at."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from env_service.geodesy import bearing_deg, haversine_km
from env_service.imagery import MapillaryBackend
from env_service.store import PanoramaStore
from env_service.tasks import Frame, Task
from env_service.views import decode_jpeg, encode_jpeg

SHEET = Path(__file__).resolve().parents[2] / "build" / "views-along-the-drive.jpg"


def test_the_view_along_the_drive_shows_the_road_ahead(shared):
    folder = shared / "data" / "mapillary"
    rows = pq.read_table(folder / "frames.parquet").to_pylist()
    rows.sort(key=lambda row: (row["sequence_id"], row["sequence_index"]))
    place = {str(row["image_id"]): number for number, row in enumerate(rows)}
    backend, views, turns = MapillaryBackend(PanoramaStore(folder / "panos")), [], []
    for path in sorted((folder / "panos").glob("*.jpg")):
        number = place[path.stem]
        row, drive = rows[number], rows[number]["sequence_id"]
        # The next captured position more than 5 m away, on the same drive: a fix wanders by a metre or two.
        ahead = next(
            other
            for other in rows[number + 1 :]
            if other["sequence_id"] == drive
            and haversine_km(row["lat"], row["lon"], other["lat"], other["lon"]) > 0.005
        )
        bearing = bearing_deg(row["lat"], row["lon"], ahead["lat"], ahead["lon"])
        turns.append((row["compass_angle"] - bearing + 180.0) % 360.0 - 180.0)
        frame = Frame(
            image_id=path.stem, lat=row["lat"], lon=row["lon"], compass_angle=row["compass_angle"] % 360.0
        )
        task = Task(
            task_index=0, task_id="t", country="Germany", sequence_id="s", provider="mapillary",
            start_frame=0, frames=(frame,),
        )  # fmt: skip
        along = [decode_jpeg(backend.view(task, 0, bearing + turn, 0.0, 90.0, 400)) for turn in (0.0, 90.0)]
        views.append(np.vstack(along))
    SHEET.parent.mkdir(exist_ok=True)
    SHEET.write_bytes(encode_jpeg(np.ascontiguousarray(np.hstack(views))))
    assert len(views) == 9
    # The camera was mounted facing ahead: its own direction and that of the drive are two measurements of one
    # thing, and would disagree at once if an angle were added where it is to be taken away.
    assert max(abs(turn) for turn in turns) < 25.0
