"""A new arm written into `arms.yaml`: its lines, and nothing else of the file is touched.

The file is written by people and full of comments, so it is not read and dumped. Lines are put behind the
last arm, and where a board is named one word goes to the end of its ladder; the result is read as the file
will be, before it takes the old one's place.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import yaml

from env_service.canonical import atomic_write
from env_service.errors import GeoError
from geo_assets.config.arms import ARMS_FILE, ArmSpec, load_arms
from geo_assets.config.arms_rules import arm_fault
from geo_assets.config.arms_yaml import ArmsFileError, compose, locate, mapping, sequence
from geo_assets.config.settings import Profile

FIX = "Correct what you typed; geo new-arm --help lists the choices"


def add_arm(fields: Mapping[str, Any], board: str = "", path: Path = ARMS_FILE) -> ArmSpec:
    """Append an arm, and put it at the end of a board's ladder if one is named; the arm as it is read then.

    Args:
        fields: what the arm says for itself; the rest comes from the file's defaults.
        board: name of a board, or empty.
        path: the file.

    Raises:
        GeoError: the file has such an arm, or no such board.
        ArmsFileError: the arm, or the file with it, cannot be used; the file is as it was.
    """
    text = path.read_text(encoding="utf-8")
    root, slug = compose(path), str(fields["slug"])
    profiles: tuple[Profile, ...] = get_args(Profile)
    if any(arm.slug == slug for profile in profiles for arm in load_arms(profile, path).arms):
        raise GeoError(f"{path.name} has an arm {slug!r} already", "Choose another slug, or edit that one")
    # Before the trial file: an address may hold a password, and no file ever does.
    if fault := arm_fault(fields)[1]:
        raise GeoError(f"Nothing was written: {fault}", FIX)
    arms = mapping(root, path, "the file")["arms"]
    edits = [(_end(sequence(arms, path, "arms")[-1], text), _lines(fields))]
    if board:
        edits.append(_on_ladder(root, board, slug, text, path))
    for place, added in sorted(edits, reverse=True):
        text = text[:place] + added + text[place:]
    found = _checked(text, slug, path)
    atomic_write(path, text.encode())
    return found


def _checked(text: str, slug: str, path: Path) -> ArmSpec:
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / path.name
        trial.write_text(text, encoding="utf-8")
        try:
            profiles: tuple[Profile, ...] = get_args(Profile)
            read = [arm for profile in profiles for arm in load_arms(profile, trial).arms]
        except ArmsFileError as error:
            problem = error.problem.partition(": ")[2] or error.problem
            raise GeoError(
                f"Nothing was written: with this arm {path.name} would not be right ({problem})",
                FIX,
            ) from None
    return next(arm for arm in read if arm.slug == slug)


def _lines(fields: Mapping[str, Any]) -> str:
    # JSON is YAML: every value is written so that nothing in it can be read as something else.
    first, *rest = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "".join(
        f"{start}{line}\n" for start, line in [("  - ", first), *(("    ", line) for line in rest)]
    )


def _end(node: yaml.Node, text: str) -> int:
    """Offset of the line behind a node's last."""
    last = len(text[: node.end_mark.index].rstrip())
    newline = text.find("\n", last)
    return len(text) if newline < 0 else newline + 1


def _on_ladder(root: yaml.Node, board: str, slug: str, text: str, path: Path) -> tuple[int, str]:
    ladder = locate(root, ["boards", board, "ladder"])
    if ladder is None:
        boards = mapping(root, path, "the file").get("boards")
        known = ", ".join(mapping(boards, path, "boards")) if boards is not None else "none"
        raise GeoError(f"{path.name} has no board {board!r}", f"It has: {known}")
    last = sequence(ladder, path, "ladder")[-1]
    if getattr(ladder, "flow_style", False):
        return last.end_mark.index, f", {slug}"
    indent = text[text.rfind("\n", 0, last.start_mark.index) + 1 : last.start_mark.index]
    return _end(last, text), f"{indent}{slug}\n"
