"""Faults of the machine in one sentence, wherever they surface: a full disk, a read-only one, a bad path."""

import errno
import os

DISK = {
    errno.ENOSPC: "The disk is full",
    errno.EDQUOT: "The disk quota is used up",
    errno.EROFS: "The file system is read-only",
    errno.EACCES: "A file or folder may not be written",
    errno.ENOTDIR: "A path leads through a file that is no folder",
}


def machine_fault(error: BaseException) -> str | None:
    """What to tell of a fault that the user's machine has; None for any other error."""
    if isinstance(error, OSError) and error.errno in DISK:
        where = f" ({error.filename})" if error.filename else ""
        return (
            f"{DISK[error.errno]}{where}. What was made so far is kept: free some space, or point GEO_HOME "
            "elsewhere, and run the same command again."
        )
    # Dagster keeps its history in SQLite, whose errors come wrapped by SQLAlchemy.
    if type(error).__module__.startswith(("sqlalchemy", "sqlite3")):
        said = str(getattr(error, "orig", None) or error).splitlines()[0]
        home = os.environ.get("DAGSTER_HOME", "DAGSTER_HOME")
        return (
            f"Dagster's history in {home} cannot be used ({said}). What was made so far is kept: make room "
            "there, or point DAGSTER_HOME elsewhere, and run the same command again."
        )
    return None
