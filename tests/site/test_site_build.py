"""The folder as it is built: what it holds, what it loads, whom it credits, and the same bytes each time."""

import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from reports_lab import three_arms
from site_lab import ARMS, EVIL, PASSES, TASKS, Built, adapters, build_site_in, publish_unscored
from sweeps_lab import lab_run, lab_stage

from env_service.canonical import sha256_file
from geo_assets.config.settings import load_settings, stage_specs
from geo_assets.lineage.assets import Stage
from geo_assets.lineage.folders import AssetFolder, MissingUpstream
from geo_assets.reports.board_table import board_table_asset, make_board
from geo_assets.reports.paired_gains import make_gains, paired_gains_asset
from geo_assets.reports.report_site import MAX_BYTES, make_site, report_site_asset
from geo_assets.reports.site.collect import collect, record_of
from geo_assets.reports.site.episodes import EpisodeView
from geo_assets.reports.site.frames import Shelf, frames_of
from geo_assets.reports.site.pages import episodes_by_arm, outside_references, sources_version
from geo_assets.sweeps.records import EpisodeRecord
from geo_assets.sweeps.replay import ReplayDiffers, Step

VOID = {"img", "meta", "link", "br", "input", "circle", "path", "line"}


class Figures(HTMLParser):
    """Every picture of a page with its alternative text and the caption of its figure."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures: list[dict[str, str]] = []
        self.captions: list[str] = []
        self._inside: list[int] = []
        self._caption = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes pictures and where captions begin."""
        if tag == "figure":
            self._inside.append(len(self.pictures))
        if tag == "img":
            self.pictures.append({name: value or "" for name, value in attrs})
            self.captions.append("")
        self._caption = self._caption or tag == "figcaption"

    def handle_endtag(self, tag: str) -> None:
        """Notes where captions end."""
        if tag == "figcaption":
            self._caption = False
        if tag == "figure":
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        """Gives a caption to the pictures of its figure."""
        if self._caption and self._inside:
            for at in range(self._inside[-1], len(self.pictures)):
                self.captions[at] += data


def test_every_picture_has_words_and_a_credit(built: Built) -> None:
    figures = Figures()
    figures.feed(built.page)
    assert len(figures.pictures) >= 20
    for picture, caption in zip(figures.pictures, figures.captions, strict=True):
        assert len(picture["alt"]) > 20
        assert "modified" in caption
        assert "licence" in caption or "CC BY" in caption
        assert (built.folder / picture["src"]).is_file()
    assert "Contributors of the pictures on this page" in built.page


def test_the_folder_needs_nothing_beside_it(built: Built) -> None:
    files = {str(p.relative_to(built.folder)): p.read_bytes() for p in built.folder.rglob("*") if p.is_file()}
    assert outside_references(files) == []
    assert all(check.passed for check in built.made.checks)
    assert sum(map(len, files.values())) < MAX_BYTES
    scripts = b"".join(data for path, data in files.items() if path.endswith((".js", ".css")))
    assert not re.search(rb"fetch\(|XMLHttpRequest|import\s*\(|@import|url\(", scripts)
    assert not re.search(r"(?:src|<link[^>]*href)\s*=\s*[\"']?(?:https?:)?//", built.page)
    # A page that loads something else is found out.
    spoilt = files | {
        "index.html": files["index.html"].replace(b'src="map.js"', b'src="https://cdn.x/map.js"')
    }
    assert outside_references(spoilt) == ["https://cdn.x/map.js"]


def test_the_same_material_gives_the_same_bytes_and_leftovers_go(built: Built) -> None:
    before = {path: sha256_file(path) for path in built.folder.rglob("*") if path.is_file()}
    (built.folder / "frames" / "leftover.jpg").write_bytes(b"old")
    again = build_site_in(built.home)
    assert again.made.data_version == built.made.data_version
    assert {path: sha256_file(path) for path in built.folder.rglob("*") if path.is_file()} == before
    said = AssetFolder(built.home, "report_site").built()
    assert said is not None
    assert said.data_version == built.made.data_version
    assert not list(built.home.glob(".report_site.*/"))
    # Neither a path of this machine nor a time of day is on the page.
    assert str(built.home) not in built.page
    assert not re.search(r"\d\d:\d\d:\d\d|20\d\d-\d\d-\d\d", built.page)


def test_what_a_model_or_a_report_says_is_never_taken_for_the_page(built: Built) -> None:
    assert EVIL not in built.page
    assert built.page.count("&lt;script&gt;alert(2)") == 2
    assert "Reward by continent" in built.page
    assert "<td>0.512</td>" in built.page


def test_an_arm_on_two_boards_is_shown_twice_and_no_address_repeats(
    built: Built,
) -> None:
    arms = three_arms()
    board = next(iter(arms.boards.values()))
    twice = replace(arms, boards={"lab": board, "other": board.model_copy(update={"label": "Other"})})
    material = collect(lab_run(built.home, "report_site"), twice, adapters())
    one = next(player for player in material.players if player.key == "best_fixed_point")
    blank: dict[str, Any] = dict.fromkeys(field.name for field in fields(EpisodeView))
    view = EpisodeView(**blank | {"arm": one.key, "key": "best_fixed_point-30-0"})
    shown = episodes_by_arm(material.players, [view])
    assert [(player.key, [e.key for e in own], {e.arm for e in own}) for player, own in shown] == [
        ("best_fixed_point", ["best_fixed_point-30-0"], {"best_fixed_point"}),
        ("best_fixed_point-again1", ["best_fixed_point-30-0-again1"], {"best_fixed_point-again1"}),
    ]
    assert len({player.label for player, _ in shown}) == 2


def test_no_address_of_the_page_stands_twice(built: Built) -> None:
    idents = re.findall(r'\sid="([^"]+)"', built.page)
    assert len(idents) == len(set(idents))


def test_map_data_hold_every_guess(built: Built) -> None:
    arms = {arm["key"]: arm for arm in built.data()["map"]["arms"]}
    run = adapters()[0]
    assert list(arms) == [*ARMS, f"{run.slug}/{run.adapter.slug}", f"{run.slug}/{run.base.slug}"]
    for arm in arms.values():
        assert sorted((guess[0], guess[1]) for guess in arm["guesses"]) == [
            (task, sample) for task in range(TASKS) for sample in range(PASSES)
        ]
    assert all(guess[2:] == [None] * 4 for guess in arms["never_guesses"]["guesses"])
    assert all(guess[4] < 200 for guess in arms["noisy_oracle"]["guesses"])


def test_episodes_of_another_environment_lose_their_pictures_and_keep_their_words(built: Built) -> None:
    run = adapters()[0]
    section = built.page.split(f'data-arm="{run.slug}/{run.adapter.slug}"', 1)[1].split("</section>")[0]
    assert "does not replay" in section
    assert "<h4>The answer" in section
    played = built.page.split('data-arm="noisy_oracle"', 1)[1].split("</section>")[0]
    assert "does not replay" not in played


def test_a_picture_of_another_hash_is_not_shown(built: Built) -> None:
    material = collect(lab_run(built.home, "report_site"), three_arms(), adapters())
    record = record_of(material.players[0], 1, 0)
    assert (record.task_index, record.sample) == (1, 0)

    def differs(_: EpisodeRecord) -> tuple[Step, ...]:
        raise ReplayDiffers("turn 1 does not replay", "fix")

    shelf = Shelf()
    frames = frames_of(record, differs, shelf)
    assert frames.views == (None,) * (len(record.turns) + 1)
    assert frames.missing == "turn 1 does not replay"
    assert list(shelf.files) == [frames.reveal.path]


@pytest.fixture(scope="module")
def bare(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A home without adapters, learning and further reports, whose sweeps have no scored episode."""
    home = tmp_path_factory.mktemp("bare")
    copy(built.home / "eval_environment", home / "eval_environment")
    for slug in ARMS:
        publish_unscored(home, slug)
    board, gains = lab_run(home, "board_table"), lab_run(home, "paired_gains")
    make_board(board, three_arms())
    make_gains(gains, three_arms())
    for run in (board, gains):
        run.folder().publish("made", {})
    return Built(
        home, make_site(lab_run(home, "report_site"), three_arms(), (), ["board_table", "paired_gains"])
    )


def copy(source: Path, target: Path) -> None:
    """Copy a folder."""
    import shutil

    shutil.copytree(source, target, symlinks=True)


def test_what_a_profile_does_not_have_is_left_out(bare: Built) -> None:
    page = bare.page
    for ident in ("training", "learning", "slice_table", "episodes"):
        assert f'id="{ident}"' not in page
        assert f'href="#{ident}"' not in page
    assert f"incomplete: 0 of {TASKS * PASSES} episodes" in page
    assert "No pair can be compared yet." in page
    assert "No arm has finished its sweep yet" in page
    assert all(check.passed for check in bare.made.checks)
    for link in re.findall(r'href="#([\w-]+)"', page):
        assert f'id="{link}"' in page


def test_nothing_to_build_from_names_the_missing_parent(tmp_path: Path) -> None:
    with pytest.raises(MissingUpstream, match=r"report_site needs eval_environment"):
        make_site(lab_run(tmp_path, "report_site"), three_arms())


def test_its_parents_are_all_reports_sweeps_and_adapters(tmp_path: Path) -> None:
    stage = lab_stage(tmp_path)
    asset = report_site_asset(stage, [board_table_asset(stage), paired_gains_asset(stage)])
    assert asset.deps[:2] == ("board_table", "paired_gains")
    assert {"eval_environment", "sweep_noisy_oracle", "adapter_run3", "sweep_adapter_run3"} <= set(asset.deps)
    assert asset.group == "reports"
    recorded = Stage(
        load_settings({"GEO_PROFILE": "recorded", "GEO_HOME": str(tmp_path)}), stage_specs("recorded")
    )
    assert not [name for name in report_site_asset(recorded, []).deps if "adapter" in name]


def test_a_changed_template_is_another_code_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from geo_assets.reports.site import pages

    before = sources_version()
    copy(pages.TEMPLATES, tmp_path / "templates")
    monkeypatch.setattr(pages, "TEMPLATES", tmp_path / "templates")
    assert sources_version() == before
    page = tmp_path / "templates" / "index.html.j2"
    page.write_text(page.read_text().replace("Where in the world?", "Where on Earth?"))
    assert sources_version() != before
