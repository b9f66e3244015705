"""Code versions: what an asset's output depends on in this repository, as one hash.

A fingerprint covers the normalised syntax trees of a compute function and, recursively, of every first-party
symbol that it refers to, its frozen spec by value, the vendored data that reached modules read, and declared
inputs: files, and slices of the lock. By symbol and not by module, so touching a statistic does not touch a
sweep that shares its module. Modules started as servers are not referred to by whoever starts them, so an
asset names them as `runs`. See docs/staleness.md.

Left out on purpose, because they move content without altering it: `NEUTRAL`. Stage values enter through the
spec, by value, and not through the classes that declare all of them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from env_service.canonical import canonical_json, sha256_file, sha256_hex
from geo_assets.lineage import references
from geo_assets.lineage.neutral import NEUTRAL
from geo_assets.lineage.references import Tables, UnfollowableCode

__all__ = ["NEUTRAL", "Fingerprint", "UnfollowableCode", "code_version", "fingerprint", "forget", "keep"]

DATA_OF = {
    "env_service.geography": "env_service/data",
    "env_service.data.outlines": "env_service/data",
    # By symbol: other protocols and the trainer share helpers of these modules that read no words.
    "geo_assets.sweeps.protocol_tools:budget": "geo_assets/sweeps/prompts/tools",
    "geo_assets.sweeps.protocol_tools:demand": "geo_assets/sweeps/prompts/tools",
    "geo_assets.sweeps.protocol_tools:picture_after": "geo_assets/sweeps/prompts/tools",
    "geo_assets.sweeps.protocol_json:message": "geo_assets/sweeps/prompts/json",
    "geo_assets.sweeps.sight:_question": "geo_assets/sweeps/prompts/swatch",
}
"""Folders whose files are read by a module, or by one symbol of it."""
LENGTH = 32


@dataclass(frozen=True)
class Fingerprint:
    """What a code version is made of.

    Attributes:
        symbols: `module:symbol` to the digest of what it runs.
        data: vendored folders and declared files to their content hash.
        spec, extra: by value, as JSON.
    """

    symbols: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    spec: Any = None
    extra: Any = None

    @property
    def version(self) -> str:
        """32 hexadecimal digits."""
        parts = {"symbols": self.symbols, "data": self.data, "spec": self.spec, "extra": self.extra}
        return sha256_hex(canonical_json(parts))[:LENGTH]


def code_version(
    targets: Iterable[str],
    spec: Any = None,
    runs: Iterable[str] = (),
    extra: Any = None,
    inputs: Iterable[str] = (),
    apart: Iterable[str] = (),
) -> str:
    """Version of `fingerprint`, which says what the arguments are.

    Raises:
        UnfollowableCode: something reached cannot be followed.
        GeoError: a target is not found.
    """
    return fingerprint(targets, spec, runs, extra, inputs, apart).version


def fingerprint(
    targets: Iterable[str],
    spec: Any = None,
    runs: Iterable[str] = (),
    extra: Any = None,
    inputs: Iterable[str] = (),
    apart: Iterable[str] = (),
) -> Fingerprint:
    """What computes something, symbol by symbol.

    Args:
        targets: what computes it: `module:symbol`, `module:outer.<locals>.inner` of an asset that is declared
            inside a function, or a whole `module`.
        spec: its frozen spec (dataclass or JSON-like value).
        runs: what it starts as servers or scripts: modules with all that they run, or `module:symbol`.
        extra: further declared inputs, JSON-like.
        inputs: files of the repository by path; `path#name` means the lines of a lock file for one package.
        apart: modules or `module:symbol` that are not followed, because they enter in another way.

    Raises:
        UnfollowableCode: something reached cannot be followed; the message names file and line.
        GeoError: a target is not found.
    """
    symbols = _tables(references.ROOT).closure([*targets, *runs], apart)
    reached = {*symbols, *(name.partition(":")[0] for name in symbols)}
    data = {folder: _folder_hash(folder) for folder in {DATA_OF[name] for name in DATA_OF.keys() & reached}}
    data |= {path: _input_hash(path) for path in inputs}
    value = asdict(spec) if is_dataclass(spec) and not isinstance(spec, type) else spec
    return Fingerprint(symbols, data, value, extra)


def neutral_code(package: str) -> dict[str, str]:
    """Digests of a package's symbols that `NEUTRAL` leaves out by name, for whoever copies the package."""
    tables, found = _tables(references.ROOT), {}
    for name in NEUTRAL:
        module, _, symbol = name.partition(":")
        table = tables.table(module) if symbol and module.split(".")[0] == package else None
        if table is not None:
            found[name] = "+".join(table.units[number].digest for number in table.bound[symbol])
    return found


def keep() -> None:
    """Write to disk what was followed, for the next process."""
    _tables(references.ROOT).keep()


def forget() -> None:
    """Read the sources anew from now on; for tests that edit them."""
    for cached in (_tables, _folder_hash, _input_hash):
        cached.cache_clear()


@cache
def _tables(root: Path) -> Tables:
    return Tables(root, _neutral)


@cache
def _neutral(name: str) -> bool:
    """Whether a module, or a `module:symbol`, is left out."""
    module = name.partition(":")[0]
    return any(name == one or module == one or module.startswith(f"{one}.") for one in NEUTRAL)


@cache
def _folder_hash(folder: str) -> str:
    files = (references.ROOT / folder).iterdir()
    counted = sorted(p for p in files if p.is_file() and p.suffix not in {".py", ".md"})
    return sha256_hex(canonical_json([[p.name, sha256_file(p)] for p in counted]))


@cache
def _input_hash(path: str) -> str:
    """Hash of a declared file, or of a lock's lines for one package; "absent" where there is none."""
    name, _, package = path.partition("#")
    file = references.ROOT / name
    if not file.is_file():
        return "absent"
    if not package:
        return sha256_file(file)
    pattern = re.compile(rf"{re.escape(package)}\s*(?:[=<>!~@;\[]|$)", re.IGNORECASE)
    lines = [line.strip() for line in file.read_text().splitlines() if pattern.match(line)]
    return "; ".join(lines) or "absent"
