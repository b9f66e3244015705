"""What an asset was made from, kept beside it, and what has changed since, in words.

`_lineage.json` in an asset's folder holds the digest of every symbol, the spec and extra inputs by value, and
the data version of every parent that went into what stands there. It is no part of any version.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from env_service.canonical import atomic_write
from geo_assets.lineage.fingerprint import Fingerprint

FILE = "_lineage.json"
ABSENT = "absent"
LONG = 60
Kind = Literal["symbol", "data", "spec", "extra", "parent"]


@dataclass(frozen=True)
class Change:
    """One thing that differs from what an asset was made from.

    Attributes:
        kind: "symbol" of the code, vendored "data", a field of the "spec" or of an "extra" input, or the
            content of a "parent".
        name: which.
        old, new: digests or values; "absent" where there was none, or is none any more.
    """

    kind: Kind
    name: str
    old: str
    new: str


@dataclass(frozen=True)
class Record:
    """What went into the content that stands in a folder."""

    made_from: Fingerprint
    parents: Mapping[str, str]
    code_version: str
    data_version: str


def record(folder: Path, made_from: Fingerprint, parents: Mapping[str, str], data_version: str) -> None:
    """Keep what an asset was made from in its folder."""
    body = {
        "code_version": made_from.version,
        "data_version": data_version,
        "parents": dict(sorted(parents.items())),
        "symbols": dict(made_from.symbols),
        "data": dict(made_from.data),
        "spec": made_from.spec,
        "extra": made_from.extra,
    }
    atomic_write(folder / FILE, json.dumps(body, separators=(",", ":")).encode() + b"\n")


def recorded(folder: Path) -> Record | None:
    """What was kept, or None where nothing readable was."""
    try:
        body = json.loads((folder / FILE).read_bytes())
        made_from = Fingerprint(body["symbols"], body["data"], body["spec"], body["extra"])
        return Record(made_from, body["parents"], body["code_version"], body["data_version"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def changes(then: Record, now: Fingerprint, parents: Mapping[str, str]) -> list[Change]:
    """What differs now, code first."""
    found = list(_differing("symbol", then.made_from.symbols, now.symbols))
    found += _differing("data", then.made_from.data, now.data)
    # Values that were kept as JSON are compared as JSON: a tuple is a list there.
    found += _differing("spec", _leaves(then.made_from.spec), _leaves(_as_json(now.spec)))
    found += _differing("extra", _leaves(then.made_from.extra), _leaves(_as_json(now.extra)))
    found += _differing("parent", then.parents, parents)
    return found


def _differing(kind: Kind, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Change]:
    for name in sorted({*old, *new}):
        before, after = old.get(name, ABSENT), new.get(name, ABSENT)
        if before != after:
            yield Change(kind, name, _shown(before), _shown(after))


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    """A JSON value as path to leaf."""
    if isinstance(value, Mapping):
        parts = {f"{path}.{key}" if path else str(key): item for key, item in value.items()}
    elif isinstance(value, list):
        parts = {f"{path}[{number}]": item for number, item in enumerate(value)}
    else:
        return {} if value is None and not path else {path or "value": value}
    return {name: leaf for at, item in parts.items() for name, leaf in _leaves(item, at).items()}


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONG else f"{text[:LONG]}…"
