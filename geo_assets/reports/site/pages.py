"""From material to files: the page, its style, its scripts and its pictures, as bytes by path.

The folder needs nothing beside it. No script fetches: data stands in a script of its own, because a page
that was opened from disk may read no other file. The same material gives the same bytes.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2

from env_service.canonical import canonical_json, sha256_file, sha256_hex
from geo_assets.reports.site import world_map
from geo_assets.reports.site.collect import Material, Player
from geo_assets.reports.site.compass import compass
from geo_assets.reports.site.credits import MAP_CREDIT, credits_table
from geo_assets.reports.site.episodes import EpisodeView
from geo_assets.reports.site.reward_curves import (
    DEEPEST_COST,
    FARTHEST_KM,
    START_COST,
    START_KM,
    at_start,
    over_cost,
    over_distance,
    parameters,
    reward_table,
)
from geo_assets.reports.site.sections import (
    behaviour_table,
    board_chart,
    board_table,
    gains_chart,
    gains_table,
    headline,
    learning_chart,
    tasks_table,
    training_parts,
    turns_chart,
    versions_table,
)

HERE = Path(__file__).parent
TEMPLATES, STATIC = HERE / "templates", HERE / "static"
PAGE, DATA = "index.html", "data.js"
SCRIPTS = ("rewards.js", "map.js", "viewer.js")
STYLES = ("site.css", "charts.css", "print.css")
REFERENCE = re.compile(r"""(?:src|srcset|href)\s*=\s*["']([^"'#][^"']*)["']""")


def sources_version() -> str:
    """Hash of templates, styles and scripts, which no import leads to."""
    files = [path for folder in (TEMPLATES, STATIC) for path in sorted(folder.iterdir()) if path.is_file()]
    return sha256_hex(canonical_json([[path.name, sha256_file(path)] for path in files]))


def build_site(
    material: Material, episodes: Sequence[EpisodeView], pictures: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Every file of the site by its path.

    Args:
        material: what the parents published.
        episodes: those to step through.
        pictures: their frames, by path.
    """
    players = {player.key: (player.label, player.data) for player in material.players}
    data = {"rewards": parameters(), "map": world_map.map_data(material.tasks, players)}
    files = {PAGE: _page(material, episodes), DATA: _script(data)}
    files |= {name: (STATIC / name).read_bytes() for name in (*STYLES, *SCRIPTS)}
    return files | dict(pictures)


def outside_references(files: Mapping[str, bytes]) -> list[str]:
    """What the page loads and the folder does not hold. Links that a reader may follow are none of it."""
    text = files[PAGE].decode()
    loaded = re.sub(r"<a\s[^>]*>", "", text)
    wanted = list(REFERENCE.findall(loaded))
    styles = b" ".join(files[name] for name in STYLES).decode()
    wanted += re.findall(r"url\(\s*[\"']?([^\"')]+)", styles) + re.findall(
        r"@import\s+[\"']([^\"']+)", styles
    )
    return sorted({path for path in wanted if path not in files})


def episodes_by_arm(
    players: Sequence[Player], episodes: Sequence[EpisodeView]
) -> list[tuple[Player, list[EpisodeView]]]:
    """The episodes of every arm that has any; of an arm on two boards twice, under two addresses.

    Args:
        players: the arms in the page's order; an arm on two boards is there twice, with the same key.
        episodes: those to step through.
    """
    found: list[tuple[Player, list[EpisodeView]]] = []
    for at, player in enumerate(players):
        own = [episode for episode in episodes if episode.arm == player.key]
        again = sum(before.key == player.key for before in players[:at])
        if again:
            mark, label = f"{player.key}-again{again}", f"{player.label} on {player.board}"
            player = replace(player, key=mark, label=label)
            own = [replace(one, arm=mark, key=f"{one.key}-again{again}", arm_label=label) for one in own]
        if own:
            found.append((player, own))
    return found


def _page(material: Material, episodes: Sequence[EpisodeView]) -> bytes:
    by_arm = episodes_by_arm(material.players, episodes)
    shown = {episode.task for episode in episodes}
    # An arm on two boards has guessed once.
    guessers = {player.key: player for player in material.players}.values()
    guesses = sum(int(player.data.guessed.sum()) for player in guessers)
    boards = [
        {
            "part": part,
            "chart": board_chart(part),
            "table": board_table(part),
            "behaviour": behaviour_table(part),
            "gains_chart": gains_chart(part),
            "gains": gains_table(part),
        }
        for part in material.boards
    ]
    page = (
        _environment()
        .get_template("index.html.j2")
        .render(
            material=material,
            headline=headline(material),
            boards=boards,
            turns=turns_chart(material),
            rewards={
                "distance": over_distance(),
                "cost": over_cost(),
                "table": reward_table(),
                "start_km": START_KM,
                "start_cost": START_COST,
                "farthest": FARTHEST_KM,
                "deepest": DEEPEST_COST,
                "at": at_start(),
            },
            trainings=[training_parts(training) for training in material.trainings],
            learning_chart=learning_chart(material.learning) if material.learning else "",
            map=world_map.world_map(material.tasks, guesses, len(guessers)),
            tasks_table=tasks_table(material.tasks),
            episodes=[episode for _, own in by_arm for episode in own],
            by_arm=by_arm,
            credits=credits_table([task for task in material.tasks if task.task_index in shown]),
            versions=versions_table(material),
            scripts=SCRIPTS,
            styles=STYLES,
            data=DATA,
        )
    )
    return page.encode()


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["km"] = _km
    made.globals["compass"] = compass
    made.globals["map_credit"] = MAP_CREDIT
    return made


def _script(data: Mapping[str, Any]) -> bytes:
    body = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True)
    return f"window.geoReport = {body};\n".encode()


def _km(value: float) -> str:
    """A distance in words: metres below a kilometre, one digit below a hundred."""
    if value < 1:
        return f"{value * 1000:,.0f} m"
    return f"{value:,.1f} km" if value < 100 else f"{value:,.0f} km"
