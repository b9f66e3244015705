"""Who made the pictures, under which licence, and that they were changed: beside each one, and in a list."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from env_service.tasks import Task
from geo_assets.reports.site.tables import Table

LICENCES = {
    "CC-BY-SA-4.0": "https://creativecommons.org/licenses/by-sa/4.0/",
    "CC-BY-4.0": "https://creativecommons.org/licenses/by/4.0/",
}
MAP_CREDIT = (
    "Map: outlines made with Natural Earth (public domain, by way of world-atlas, ISC); towns: GeoNames, "
    "CC BY 4.0; both modified: simplified and drawn anew"
)
VIEW_CHANGE = "modified: a view cut from a panorama and reduced"


@dataclass(frozen=True)
class Credit:
    """The credit of one picture.

    Attributes:
        contributor: who took it.
        licence: its short name.
        licence_url: the licence's text; empty where unknown.
        source: where it came from.
        change: what was done to it.
    """

    contributor: str
    licence: str
    licence_url: str
    source: str
    change: str = VIEW_CHANGE


def credit_of(task: Task) -> Credit:
    """The credit that a task's pictures carry; what a row does not say is said to be unknown."""
    said = task.attribution
    licence = str(said.get("licence") or said.get("license") or "").strip()
    who = str(said.get("creator_username") or said.get("creator_id") or "").strip()
    return Credit(
        contributor=who or "contributor unknown",
        licence=licence.replace("CC-", "CC ").replace("-4.0", " 4.0") or "licence unknown",
        licence_url=LICENCES.get(licence, ""),
        source=str(said.get("source") or task.provider),
    )


def credits_table(shown: Iterable[Task]) -> Table:
    """Contributors of the pictures on the page, most pictured first."""
    counted = Counter((credit.contributor, credit.licence, credit.source) for credit in map(credit_of, shown))
    rows = [
        [who, licence, source, VIEW_CHANGE, f"{count:,}"]
        for (who, licence, source), count in sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    ]
    return Table(
        "Contributors of the pictures on this page",
        ["contributor", "licence", "source", "change", "places shown"],
        rows,
        texts=frozenset({0, 1, 2, 3}),
    )
