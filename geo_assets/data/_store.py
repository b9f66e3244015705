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
from typing import Any
from uuid import uuid4

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
            fs, root = _driver(store)
            with suppress(FileNotFoundError):  # an empty store; `exists` would hide every other fault too
                fs.info(root)
    return store


def check_writable(store: PanoramaStore) -> None:
    """Make a folder's store and write to it, or put an object and take it away, before anything is fetched.

    Raises:
        StoreUnusable: one may not.
    """
    folder = folder_of(store)
    with told(store.url):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder, suffix=".part", prefix="."):
                pass
            return
        fs, root = _driver(store)
        probe = f"{root}/.{uuid4().hex}.part"
        fs.pipe_file(probe, b"")
        with suppress(PermissionError):  # a writer needs no right to delete
            fs.rm_file(probe)


def folder_of(store: PanoramaStore) -> Path | None:
    """Where a store lies on this machine; None for a remote one."""
    fs, root = _driver(store)
    return Path(root) if isinstance(fs, LocalFileSystem) else None


def sizes(store: PanoramaStore) -> Callable[[Wanted], int]:
    """A function that tells the stored size of a picture, -1 where there is none, without reading it.

    A folder is asked for each. A remote store is listed once, at the first question: a thousand names come in
    one answer, where asking for each takes a round trip a picture and two for one that is absent.
    """
    folder = folder_of(store)
    listed: dict[str, int] = {}
    asked = False

    def in_folder(item: Wanted) -> int:
        with told(store.url):
            try:
                return (folder / _file_name(item)).stat().st_size if folder else -1
            except (FileNotFoundError, NotADirectoryError):
                return -1

    def in_listing(item: Wanted) -> int:
        nonlocal asked
        if not asked:
            with told(store.url), suppress(FileNotFoundError):  # an empty store
                fs, root = _driver(store)
                for entry in fs.ls(root, detail=True):
                    listed[str(entry["name"]).rsplit("/", 1)[-1]] = int(entry["size"] or 0)
            asked = True
        return listed.get(_file_name(item), -1)

    return in_listing if folder is None else in_folder


def _file_name(item: Wanted) -> str:
    return f"{item.image_id}{'.orig.jpg' if item.original else '.jpg'}"


def _driver(store: PanoramaStore) -> tuple[Any, str]:
    """The file system of a store and its root there; other processes write too, so nothing is cached."""
    fs, root = fsspec.url_to_fs(store.url, use_listings_cache=False)
    return fs, str(root).rstrip("/")


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
