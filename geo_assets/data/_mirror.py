"""Pictures fetched into the store, shard by shard, each once.

A shard is a share of the pictures by the hash of their image id, so any number of machines may each take one
and none writes a file that another writes. What a shard has fetched and verified stands in its own log with
SHA-256 and size; a rerun believes a line of the log when the store still holds those bytes (see `_store` for
how many it reads to know). A picture that is not what was stored is fetched again. Links are resolved when a
picture is fetched and never stored.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from env_service.canonical import sha256_hex
from env_service.errors import GeoError
from env_service.store import BadPicture, PanoramaStore
from env_service.tasks import Task
from geo_assets.data._journal import Journal, read_entries
from geo_assets.data._store import Wanted, altered, rotation, sizes, told
from resources.mapillary import (
    LinkExpired,
    MapillaryClient,
    MapillaryError,
    NotFound,
    RateLimited,
    ServiceUnavailable,
    UnexpectedAnswer,
)

FRAME_BYTES, ORIGINAL_BYTES = 260_000, 1_800_000
"""What a 2048 px picture and an original weigh, until 100 of them are there to be weighed."""
ENOUGH_TO_MEASURE = 100
MOST_FAILURES_IN_A_ROW = 5


class NoRoom(GeoError):
    """The pictures will not fit where the store lives."""


class PicturesOutstanding(GeoError):
    """Some pictures did not come for reasons that pass."""


@dataclass(frozen=True)
class Fetched:
    """What came of one picture: its SHA-256 and size, or why there is none.

    `attempt` counts how often it was fetched; the highest holds where logs name one picture several times.
    """

    sha256: str = ""
    size: int = 0
    missing: str = ""
    attempt: int = 0


Log = Journal[tuple[Wanted, Fetched]]


def wanted_pictures(tasks: Iterable[Task], originals: bool) -> list[Wanted]:
    """Every picture that the tasks need, once each, in order."""
    frames = {Wanted(frame.image_id) for task in tasks for frame in task.frames}
    starts = {Wanted(task.start.image_id, True) for task in tasks} if originals else set()
    return sorted(frames | starts)


def shard_of(image_id: str, shards: int) -> int:
    """The shard of an image: a hash of its id, so neither order nor neighbours matter."""
    return int.from_bytes(hashlib.sha256(image_id.encode()).digest()[:8], "big") % shards


def read_verified(folder: Path, source: str) -> dict[Wanted, Fetched]:
    """Everything that the shards' logs say has been fetched from a source.

    Raises:
        DamagedLine: a line of a log is not what was written.
    """
    found: dict[Wanted, Fetched] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for item, got in read_entries(path, source, read_fetched):
            if item not in found or got.attempt >= found[item].attempt:
                found[item] = got
    return found


def outstanding(
    wanted: Sequence[Wanted], verified: Mapping[Wanted, Fetched], store: PanoramaStore, folder: Path
) -> list[Wanted]:
    """Pictures still to be fetched, in order: not in the log, or not in the store as the log says.

    Args:
        folder: the mirror's, which knows what share of a large store is hashed this time.
    """
    size_of = sizes(store)
    stored = {item: verified[item] for item in wanted if item in verified and not verified[item].missing}
    todo = {item for item in wanted if item not in verified}
    todo |= {item for item, got in stored.items() if size_of(item) != got.size}
    due = rotation(folder, bytes_of(verified), store).due
    todo |= set(altered(store, {i: g.sha256 for i, g in stored.items() if i not in todo and due(i)}))
    return [item for item in wanted if item in todo]


def bytes_of(verified: Mapping[Wanted, Fetched]) -> int:
    """What the store holds by the logs."""
    return sum(got.size for got in verified.values())


def check_room(todo: Sequence[Wanted], verified: Mapping[Wanted, Fetched], store: PanoramaStore) -> int:
    """Projected bytes of what is still to be fetched.

    Raises:
        NoRoom: they are more than the store has free.
    """
    projected = 0
    for original, weight in ((False, FRAME_BYTES), (True, ORIGINAL_BYTES)):
        known = [got.size for item, got in verified.items() if item.original is original and got.size]
        mean = sum(known) / len(known) if len(known) >= ENOUGH_TO_MEASURE else weight
        projected += round(mean * sum(item.original is original for item in todo))
    free = store.free_bytes()
    if free is not None and projected > free:
        raise NoRoom(
            f"{len(todo):,} pictures of about {projected / 1e9:.2f} GB will not fit into {store.url}, "
            f"which has {free / 1e9:.2f} GB free",
            "Free some space, or point GEO_STORE_URL at a larger store",
        )
    return projected


def fetch_all(
    todo: Sequence[Wanted],
    verified: Mapping[Wanted, Fetched],
    client: MapillaryClient,
    store: PanoramaStore,
    log: Log,
    threads: int,
    progress: Callable[[Iterable[Wanted]], Iterable[Wanted]],
) -> None:
    """Fetch pictures several at once; each is in the store before it is in the log.

    Args:
        verified: what came of them before, for those that are fetched again.

    Raises:
        PicturesOutstanding: some did not come; the rest is stored.
        StoreFull: no room; what was stored stays.
        TokenRefused: nothing will come with this token.
    """
    failed: list[MapillaryError] = []
    in_a_row = 0
    source = iter(todo)

    def attempt(item: Wanted) -> MapillaryError | None:
        return _attempt(item, verified.get(item), client, store, log)

    with ThreadPoolExecutor(threads) as pool:
        try:
            pending = {pool.submit(attempt, item) for item in islice(source, 2 * threads)}
            for _ in progress(todo):
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                first = next(iter(done))
                pending.remove(first)
                pending |= {pool.submit(attempt, item) for item in islice(source, 1)}
                fault = first.result()
                in_a_row = in_a_row + 1 if fault is not None else 0
                failed += [fault] if fault is not None else []
                if in_a_row >= MOST_FAILURES_IN_A_ROW:
                    break
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    if failed:
        raise PicturesOutstanding(
            f"{len(failed)} of {len(todo):,} pictures did not come; the last fault was: {failed[-1].problem}",
            "Run the same command again; what is stored already is kept",
        )


def fetch_one(item: Wanted, client: MapillaryClient, store: PanoramaStore) -> Fetched:
    """Fetch, verify and store one picture; a picture that is damaged is fetched a second time.

    Raises:
        LinkExpired, RateLimited, ServiceUnavailable, UnexpectedAnswer, TokenRefused, StoreFull
    """
    reason = ""
    for _ in range(2):
        try:
            data = client.picture(item.image_id, original=item.original)
            with told(store.url):
                store.put(item.image_id, data, item.original)
            return Fetched(sha256_hex(data), len(data))
        except NotFound:
            return Fetched(missing="no such picture")
        except BadPicture:
            reason = "damaged or not 2:1"
    return Fetched(missing=reason)


def _attempt(
    item: Wanted, before: Fetched | None, client: MapillaryClient, store: PanoramaStore, log: Log
) -> MapillaryError | None:
    """Fetch one picture and write down what came of it; returns a fault that passes."""
    try:
        got = fetch_one(item, client, store)
    except (LinkExpired, RateLimited, ServiceUnavailable, UnexpectedAnswer) as error:
        return error
    log.append(_line(item, replace(got, attempt=before.attempt + 1 if before else 0)))
    return None


def _line(item: Wanted, got: Fetched) -> dict[str, Any]:
    line: dict[str, Any] = {"image_id": item.image_id, "original": item.original}
    line |= {"missing": got.missing} if got.missing else {"sha256": got.sha256, "bytes": got.size}
    return line | ({"attempt": got.attempt} if got.attempt else {})


def read_fetched(entry: Mapping[str, Any]) -> tuple[Wanted, Fetched]:
    """A picture and what came of it, as a log holds them.

    Raises:
        KeyError, TypeError, ValueError: the entry says something else.
    """
    item = Wanted(str(entry["image_id"]), bool(entry["original"]))
    missing, attempt = str(entry.get("missing", "")), int(entry.get("attempt", 0))
    if missing:
        return item, Fetched(missing=missing, attempt=attempt)
    return item, Fetched(str(entry["sha256"]), int(entry["bytes"]), attempt=attempt)
