"""Faults of the machine in one sentence, wherever they surface: a full disk, a read-only one, a bad path."""

import errno
import os

DISK = {
    errno.ENOSPC: "The disk is full",
    errno.EDQUOT: "The disk quota is used up",
    errno.EROFS: "The file system is read-only",
    errno.EACCES: "A file or folder may not be written",
    errno.EPERM: "A file or folder may not be written",
    errno.ENOTDIR: "A path leads through a file that is no folder",
}
FULL = (errno.ENOSPC, errno.EDQUOT)
MENDED = "What was made so far is kept: {}, or point GEO_HOME elsewhere, and run the same command again."
REMEDIES = {
    **dict.fromkeys(FULL, MENDED.format("free some space")),
    errno.EROFS: MENDED.format("mount it for writing"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), MENDED.format("see to its owner and permissions")),
    errno.ENOTDIR: "Name another path (GEO_HOME, if it is the home), and run the same command again.",
}
"""What mends which fault: room is no help where nothing may be written."""


def machine_fault(error: BaseException) -> str | None:
    """What to tell of a fault that the user's machine has; None for any other error."""
    if isinstance(error, OSError) and error.errno in DISK:
        where = f" ({error.filename})" if error.filename else ""
        return f"{DISK[error.errno]}{where}. {REMEDIES[error.errno]}"
    # Dagster keeps its history in SQLite, whose errors come wrapped by SQLAlchemy.
    if type(error).__module__.startswith(("sqlalchemy", "sqlite3")):
        said = str(getattr(error, "orig", None) or error).splitlines()[0]
        home = os.environ.get("DAGSTER_HOME", "DAGSTER_HOME")
        return (
            f"Dagster's history in {home} cannot be used ({said}). What was made so far is kept: "
            f"{_room_for(said)}, or point DAGSTER_HOME elsewhere, and run the same command again."
        )
    return None


def _room_for(said: str) -> str:
    """What mends SQLite's fault, by its own words for it."""
    if "full" in said:
        return "make room there"
    if "readonly" in said or "unable to open" in said:
        return "see to its owner and permissions"
    return "move it aside"
