"""Panoramas at rest: one `<image_id>.jpg` per frame and `<image_id>.orig.jpg` for full-size originals.

The store is a folder or any fsspec address. It never asks a network service for a missing picture; it says
which frame is missing and from where. What becomes visible under a final name has been decoded and measured
first, so a reader never meets half a download. Not here: fetching, manifests, licence credits.
"""

import errno
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import simplejpeg
from fsspec.implementations.local import LocalFileSystem

from env_service.canonical import atomic_write, sha256_hex
from env_service.errors import GeoError
from env_service.tasks import IMAGE_ID_PATTERN

MAX_PIXELS = 200_000_000
"""Largest picture that is decoded; the largest original seen in the wild has 29.5 million."""

# On these a single put is all-or-nothing, and a rename would be a copy of the whole object.
_ATOMIC_PUT = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "hf", "memory"}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_ID = re.compile(IMAGE_ID_PATTERN)


class MissingFrame(GeoError):
    """A frame that is not in the store; `image_id` and `store` say which and where."""

    def __init__(self, image_id: str, store: str, original: bool = False) -> None:
        self.image_id = image_id
        self.store = store
        super().__init__(
            f"{_kind(original)} {image_id} is not in the store {store}",
            "Mirror the panoramas again, or point the store at the folder that holds it.",
        )


class BadPicture(GeoError):
    """Bytes that are no usable picture: not a JPEG, truncated, or not twice as wide as high."""


class UnreadableFrame(GeoError):
    """A frame that is in the store but cannot be read: no right to, or no file."""


class BadImageId(GeoError):
    """An image id that could not be a file name."""


class StoreFull(GeoError):
    """No room for a picture; nothing that was already stored has been touched."""


class StoreUnwritable(GeoError):
    """The store refused a write for a reason other than space."""


class PanoramaStore:
    """Pictures by image id under one folder or fsspec address. Safe to share between threads.

    Args:
        url: a folder, or an address fsspec knows (`s3://bucket/prefix`, `hf://buckets/…`, `memory://x`).

    Raises:
        GeoError: the address holds credentials, or its driver is not installed.
    """

    def __init__(self, url: str | Path) -> None:
        self.url = str(url)
        refuse_credentials(self.url)
        try:
            # Other processes write too, so a listing is never believed a second time.
            fs, root = fsspec.url_to_fs(self.url, use_listings_cache=False)
        except (ValueError, ImportError) as error:
            raise GeoError(
                f"the store address {self.url!r} cannot be opened ({error})",
                "Give a folder or an address whose fsspec driver is installed.",
            ) from error
        self._fs: Any = fs
        self._root = str(root).rstrip("/")
        self._folder = Path(self._root) if isinstance(fs, LocalFileSystem) else None

    def __repr__(self) -> str:
        return f"PanoramaStore({self.url!r})"

    def get(self, image_id: str, original: bool = False) -> bytes:
        """The stored JPEG bytes.

        Raises:
            MissingFrame: the store does not hold it.
            UnreadableFrame: the store does not give it out.
            BadImageId: the id could not be a file name.
        """
        path = self._path(image_id, original)
        try:
            data = Path(path).read_bytes() if self._folder else self._fs.cat_file(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingFrame(image_id, self.url, original) from error
        except Exception as error:  # a driver without credentials raises what its vendor raises
            raise UnreadableFrame(
                f"{self.name(image_id, original)} cannot be read ({_said(error)})",
                "Check the store and its rights.",
            ) from error
        return bytes(data)

    def name(self, image_id: str, original: bool = False) -> str:
        """A stored picture in words for an operator: which frame, in which store."""
        return f"{_kind(original)} {image_id} in the store {self.url}"

    def exists(self, image_id: str, original: bool = False) -> bool:
        """Whether the store holds it. Raises BadImageId."""
        path = self._path(image_id, original)
        return Path(path).is_file() if self._folder else bool(self._fs.isfile(path))

    def put(self, image_id: str, data: bytes, original: bool = False, *, panorama: bool = True) -> str:
        """Verify a JPEG and store it in one step, replacing any earlier one.

        Args:
            image_id: its name in the store.
            data: the complete JPEG file.
            original: store it as the full-size original.
            panorama: require the 2:1 shape of a full panorama; False for a single photograph.

        Returns:
            Lower-case hexadecimal SHA-256 of the bytes.

        Raises:
            BadPicture: it does not decode completely, or has the wrong shape; nothing is stored.
            StoreFull: no room; everything stored before is as it was.
            StoreUnwritable: the store refused the write.
        """
        path = self._path(image_id, original)
        _verify(image_id, data, panorama)
        try:
            self._write(path, data)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise StoreFull(
                    f"the store {self.url} has no room for frame {image_id} ({len(data):,} bytes)",
                    "Free some space and run the same command again; what is stored already is kept.",
                ) from error
            raise StoreUnwritable(
                f"the store {self.url} did not take frame {image_id} ({_said(error)})",
                "Check the address and its rights, then run the same command again.",
            ) from error
        return sha256_hex(data)

    def list_ids(self, original: bool = False) -> list[str]:
        """Ids of all stored frames (or of all originals), sorted; an absent folder is an empty store."""
        suffix = ".orig.jpg" if original else ".jpg"
        names = (name for name in self._names() if name.endswith(suffix))
        return sorted(stem for name in names if _ID.fullmatch(stem := name.removesuffix(suffix)))

    def sha256(self, image_id: str, original: bool = False) -> str:
        """SHA-256 of the stored bytes. Raises MissingFrame."""
        return sha256_hex(self.get(image_id, original))

    def free_bytes(self) -> int | None:
        """Bytes free where a local store lives (its nearest existing parent); None for a remote one."""
        if self._folder is None:
            return None
        existing = next(path for path in (self._folder, *self._folder.parents) if path.exists())
        return shutil.disk_usage(existing).free

    def _path(self, image_id: str, original: bool) -> str:
        # The pattern has neither dot nor slash, so no id can leave the folder or hit another file.
        if not isinstance(image_id, str) or not _ID.fullmatch(image_id):
            shown = repr(image_id)
            raise BadImageId(
                f"{shown if len(shown) <= 80 else shown[:80] + '…'} is no image id",
                "An id has 1 to 64 letters, digits, hyphens or underscores.",
            )
        return f"{self._root}/{image_id}{'.orig.jpg' if original else '.jpg'}"

    def _write(self, path: str, data: bytes) -> None:
        if self._folder is not None:
            atomic_write(path, data)
            return
        protocols = {self._fs.protocol} if isinstance(self._fs.protocol, str) else set(self._fs.protocol)
        if protocols & _ATOMIC_PUT:
            self._fs.pipe_file(path, data)
            return
        temporary = f"{self._root}/.{uuid.uuid4().hex}.part"
        self._fs.makedirs(self._root, exist_ok=True)
        try:
            self._fs.pipe_file(temporary, data)
            self._fs.mv(temporary, path)
        except BaseException:
            if self._fs.exists(temporary):
                self._fs.rm_file(temporary)
            raise

    def _names(self) -> Iterator[str]:
        if self._folder is not None:
            if self._folder.is_dir():
                yield from (entry.name for entry in self._folder.iterdir())
            return
        try:
            found = self._fs.ls(self._root, detail=False)
        except FileNotFoundError:
            return
        yield from (str(path).rsplit("/", 1)[-1] for path in found)


def _verify(image_id: str, data: bytes, panorama: bool) -> None:
    again = "Fetch it again; if it stays so, leave the frame out."
    name = f"frame {image_id}"
    width, height = require_decodable(name, data, again)
    try:
        # `strict` turns libjpeg's warning about a premature end into an error.
        simplejpeg.decode_jpeg(data, colorspace="GRAY", strict=True)
    except (ValueError, RuntimeError, TypeError) as error:
        raise BadPicture(f"{name} is not a complete JPEG ({error})", again) from error
    if panorama:
        require_panorama(name, width, height, again)


def require_decodable(
    name: str, data: bytes, fix: str = "Put a fresh copy of it into the store."
) -> tuple[int, int]:
    """Width and height of a JPEG, from its header.

    Args:
        name: what to call the picture in a refusal.
        data: the file.
        fix: what to do about it.

    Raises:
        BadPicture: no JPEG, or larger than is decoded.
    """
    try:
        height, width, _, _ = simplejpeg.decode_jpeg_header(data)
    except (ValueError, RuntimeError, TypeError) as error:
        raise BadPicture(f"{name} is not a complete JPEG ({error})", fix) from error
    if height * width > MAX_PIXELS:
        raise BadPicture(f"{name} has {width}x{height} pixels, more than is decoded", fix)
    return int(width), int(height)


def require_panorama(
    name: str,
    width: int,
    height: int,
    fix: str = "Mirror it again; the task row of a single photograph says is_pano false.",
) -> None:
    """The shape of a full panorama. Raises BadPicture, with `name` and `fix` as its words."""
    if width != 2 * height:
        raise BadPicture(f"{name} has {width}x{height} pixels; a full panorama is twice as wide as high", fix)


def refuse_credentials(url: str) -> None:
    """Keep keys out of addresses, which are written into configurations and said in messages.

    Raises:
        GeoError: a remote address has a password or a query (a signature); it is not repeated.
    """
    scheme, separator, rest = url.partition("://")
    # A secret key may hold slashes, so it need not stand where a URL has its password.
    if separator and ("?" in rest or ":" in rest.rpartition("@")[0]):
        raise GeoError(
            f"the {scheme}:// address of the store holds credentials or a query",
            "Give the bare address, and credentials the way its driver takes them (AWS_… for s3://).",
        )


def _said(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


def _kind(original: bool) -> str:
    return "the original of frame" if original else "frame"
