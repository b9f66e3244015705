"""A finished sweep as a table may use it: the episodes that stand there, held against what was published.

The sweep's data version is a hash over its episodes. It is computed again here, so that an episode that was
altered, added or taken away by whatever means is found out before a figure is made of it. One thing may be
missing: the end of the file. A last line that was torn, by a crash or a full disk, leaves the sweep
incomplete and nothing worse.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from env_service.errors import GeoError
from geo_assets.lineage.folders import MARKER, Published
from geo_assets.sweeps.episode_file import EPISODES, Key, read_file, refuse_bad
from geo_assets.sweeps.names import sweep_slug
from geo_assets.sweeps.outcomes import outcome_table, refresh
from geo_assets.sweeps.records import EpisodeRecord, Provenance
from geo_assets.sweeps.store import OUTCOMES
from geo_assets.sweeps.version import episodes_version


class AlteredSweep(GeoError):
    """A sweep's folder does not hold what the sweep published."""


class _Facts(BaseModel):
    """What a sweep says of itself and a table relies on."""

    model_config = ConfigDict(frozen=True, strict=True)

    tasks: Annotated[int, Field(ge=1)]
    k: Annotated[int, Field(ge=1)]
    environment_version: str
    harness_version: str


@dataclass(frozen=True)
class PublishedSweep:
    """A finished sweep.

    Attributes:
        tasks, k: what was asked for.
        complete: every (task, sample) of it is scored.
        version: data version of what stands there.
        environment_version, harness_version, prompt_version: what was played, and by what.
        outcomes: the outcome table of the wanted passes, sorted by (sample, task).
    """

    tasks: int
    k: int
    complete: bool
    version: str
    environment_version: str
    harness_version: str
    prompt_version: str
    outcomes: pa.Table


def read_published(
    published: Published, name: str, say: Callable[[str], None] = lambda _: None
) -> PublishedSweep:
    """Read and verify a sweep's folder.

    Args:
        published: the folder and its marker.
        name: what messages call the sweep.
        say: told of a torn line, and of an outcome table that had to be made again.

    Raises:
        AlteredSweep: the marker says too little, or the episodes are not those that were published.
        DamagedEpisodes: a line is no episode.
    """
    folder, slug = published.path, sweep_slug(published.path)
    facts, path = _facts(published, slug), folder / EPISODES
    if not path.exists():
        raise AlteredSweep(f"{name} is finished and {folder} holds no {EPISODES}", _mend(slug))
    reading = read_file(path)
    refuse_bad(path, reading)
    plan = [(sample, task) for sample in range(facts.k) for task in range(facts.tasks)]
    wanted = {key: reading.records[key] for key in plan if key in reading.records}
    missing = [key for key in plan if key not in wanted]
    version = episodes_version(wanted.values(), missing, facts.k)
    if reading.torn:
        say(f"{path}: a torn last line of {reading.torn:,} bytes is left out; run: geo sweep {slug}")
    if version != published.data_version and not (reading.torn and missing):
        raise AlteredSweep(
            f"The episodes in {folder} are not those that {name} published "
            f"({len(wanted)} of {len(plan)} stand there)",
            _mend(slug),
        )
    if not reading.torn and refresh(folder, outcome_table(reading.records.values())):
        say(f"{folder / OUTCOMES} is not what its episodes give; it is made again from them")
    played = _played(wanted, facts, folder, slug)
    return PublishedSweep(
        tasks=facts.tasks,
        k=facts.k,
        complete=not missing,
        version=version,
        environment_version=played[0],
        harness_version=played[1],
        prompt_version=played[2],
        outcomes=outcome_table(wanted.values()),
    )


def _facts(published: Published, slug: str) -> _Facts:
    try:
        return _Facts.model_validate(published.facts)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in fault["loc"])
        what = "is missing" if fault["type"] == "missing" else f"is wrong: {fault['msg'].lower()}"
        raise AlteredSweep(
            f"{published.path / MARKER} does not say what was swept: facts.{field} {what}",
            f"Run: geo sweep {slug} (episodes that are there are not played again)",
        ) from None


def _played(wanted: dict[Key, EpisodeRecord], facts: _Facts, folder: Path, slug: str) -> tuple[str, str, str]:
    """Environment, harness and prompt version of all episodes; the first two as the marker says them."""

    def of(provenance: Provenance) -> tuple[str, str, str]:
        return provenance.environment_version, provenance.harness_version, provenance.prompt_version

    found = {of(record.provenance) for record in wanted.values()}
    if not found:
        return facts.environment_version, facts.harness_version, ""
    one = min(found)
    if len(found) > 1 or one[:2] != (facts.environment_version, facts.harness_version):
        raise AlteredSweep(
            f"The episodes in {folder} were played by another environment or harness than its {MARKER} names",
            _mend(slug),
        )
    return one


def _mend(slug: str) -> str:
    return (
        f"Put the folder back as it was, or run: geo sweep {slug} "
        "(it keeps the episodes that are as they were written and plays the others again)"
    )
