"""Folders that are made aside and put in place whole, so that a kill leaves the old one or the new one."""

import shutil
from pathlib import Path


def swap(staged: Path, target: Path, aside: Path) -> None:
    """Put a finished folder in the place of another."""
    if target.exists():
        target.rename(aside / f"{target.name}.old")
    staged.rename(target)


def recover(target: Path) -> None:
    """Clear away what a killed run left, after putting back a folder that it had just moved aside."""
    for aside in sorted(target.parent.glob(f".{target.name}.*")):
        if aside.is_dir():
            old = aside / f"{target.name}.old"
            if old.exists() and not target.exists():
                old.rename(target)
            shutil.rmtree(aside, ignore_errors=True)
