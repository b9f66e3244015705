"""The panorama store as the mirror uses it: opened, weighed, looked through.

Two things a store can do that no picture shows. It may not be usable at all: an address below a plain file,
no credentials, a folder one may not write. Every such fault, whatever driver it comes from, is told in one
sentence with the address. And it may hold other bytes than were stored, in the same size: a bad disk, a copy
that went wrong, an edit. So the bytes are hashed again, all of them as long as that is cheap (seconds), else
a share of them that moves on with every clean run until all have been seen.
"""

import errno
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile

import fsspec
from fsspec.implementations.local import LocalFileSystem

from env_service.canonical import atomic_write
from env_service.errors import GeoError
from env_service.store import MissingFrame, PanoramaStore

ROTATION = "looked_through.json"
LOCAL_BYTES = 4_000_000_000
"""Hashed again per step in a folder: some seconds. A store that is no larger is looked through entirely."""
REMOTE_BYTES = 64_000_000
"""The same where reading is downloading."""
READERS = 4


class StoreUnusable(GeoError):
    """The panorama store cannot be read or written where GEO_STORE_URL points."""


@dataclass(frozen=True, order=True)
class Wanted:
    """One picture: an image, at 2048 px or as captured."""

    image_id: str
    original: bool = False

    def __str__(self) -> str:
        return f"{self.image_id} (original)" if self.original else self.image_id


@contextmanager
def told(url: str) -> Iterator[None]:
    """Turn whatever a store's driver raises into one sentence that names the address.

    Raises:
        StoreUnusable: instead of any other exception but a `GeoError` and a full disk.
    """
    try:
        yield
    except GeoError:
        raise
    except Exception as error:  # drivers raise what their vendors raise; there is no common class
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        said = getattr(error, "strerror", None) or str(error) or "no reason given"
        said = " ".join(said.split())[:200]
        raise StoreUnusable(
            f"The panorama store {url} cannot be used ({type(error).__name__}: {said})",
            "Point GEO_STORE_URL at a folder that you may write to, or at an address whose driver and "
            "credentials are set up, then run the same command again",
        ) from error


def open_store(url: str) -> PanoramaStore:
    """The store at an address.

    Raises:
        StoreUnusable: there can be none, or it does not answer.
    """
    with told(url):
        store = PanoramaStore(url)
        folder = folder_of(store)
        if folder is not None:
            existing = next(path for path in (folder, *folder.parents) if path.exists())
            if not existing.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, f"{existing} is no folder")
        else:
            fs, root = fsspec.url_to_fs(url)
            with suppress(FileNotFoundError):  # an empty store; `exists` would hide every other fault too
                fs.info(root)
    return store


def check_writable(store: PanoramaStore) -> None:
    """Make a folder's store and write to it, before anything is fetched for it.

    Raises:
        StoreUnusable: one may not.
    """
    folder = folder_of(store)
    if folder is not None:
        with told(store.url):
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder, suffix=".part", prefix="."):
                pass


def folder_of(store: PanoramaStore) -> Path | None:
    """Where a store lies on this machine; None for a remote one."""
    fs, root = fsspec.url_to_fs(store.url)
    return Path(str(root)) if isinstance(fs, LocalFileSystem) else None


def sizes(store: PanoramaStore) -> Callable[[Wanted], int]:
    """A function that tells the stored size of a picture, -1 where there is none, without reading it."""
    with told(store.url):
        fs, root = fsspec.url_to_fs(store.url)

    def size(item: Wanted) -> int:
        with told(store.url):
            try:
                path = f"{root}/{item.image_id}{'.orig.jpg' if item.original else '.jpg'}"
                return int(fs.info(path)["size"])
            except FileNotFoundError:
                return -1

    return size


@dataclass(frozen=True)
class Rotation:
    """Which share of the store is looked through now: one of `parts`, by the hash of the image id."""

    parts: int = 1
    turn: int = 0

    def due(self, item: Wanted) -> bool:
        """Whether it is this picture's turn."""
        digest = sha256(f"look {item.image_id}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.parts == self.turn % self.parts


def rotation(folder: Path, stored_bytes: int, store: PanoramaStore) -> Rotation:
    """The share that is due.

    Args:
        folder: where the turn is kept.
        stored_bytes: what the store holds for us.
    """
    limit = LOCAL_BYTES if folder_of(store) is not None else REMOTE_BYTES
    try:
        turn = int(json.loads((folder / ROTATION).read_text())["turn"])
    except (OSError, ValueError, KeyError, TypeError):
        turn = 0
    return Rotation(max(1, math.ceil(stored_bytes / limit)), turn)


def move_on(folder: Path, rotation: Rotation) -> None:
    """The share was found whole: the next one is due."""
    if rotation.parts > 1:
        turn = (rotation.turn + 1) % rotation.parts
        atomic_write(folder / ROTATION, json.dumps({"turn": turn, "of": rotation.parts}).encode() + b"\n")


def altered(
    store: PanoramaStore, expected: Mapping[Wanted, str] | Iterable[tuple[Wanted, str]]
) -> list[Wanted]:
    """Pictures whose stored bytes are gone, or have another SHA-256 than expected; reads them all."""
    pairs = list(expected.items() if isinstance(expected, Mapping) else expected)

    def differs(pair: tuple[Wanted, str]) -> bool:
        item, digest = pair
        with told(store.url):
            try:
                return store.sha256(item.image_id, item.original) != digest
            except MissingFrame:
                return True

    with ThreadPoolExecutor(READERS) as pool:
        return [pair[0] for pair, bad in zip(pairs, pool.map(differs, pairs), strict=True) if bad]
