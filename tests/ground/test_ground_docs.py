"""README and docs name only commands, files and targets that exist."""

import re
from pathlib import Path

import pytest
import typer.main

from geo_assets import cli

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    if not cli.app.registered_commands:
        cli._register()
    commands = set(typer.main.get_command(cli.app).commands)  # type: ignore[attr-defined]
    code = "\n".join(re.findall(r"`([^`\n]+)`", text) + re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL))
    assert not set(re.findall(r"\bmake ([a-z-]+)", code)) - targets
    assert not set(re.findall(r"(?:^|\n|Run: )geo ([a-z-]+)", code)) - commands


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
