"""Whether a process is the one that it was: its id may have gone to another, and clocks get set.

Where `/proc` has them, a birth is the boot and the ticks since it: neither moves when the clock is set or the
machine sleeps. Elsewhere it is the time that `psutil` gives, which may be off by what the clock was set by.
"""

from pathlib import Path

import psutil

PROC = Path("/proc")
NEAR_S = 1.0
Birth = str | float


def birth(pid: int) -> Birth | None:
    """When a process was born, in a form to be compared by `alive` alone; None where there is none."""
    exact = _exact(pid)
    if exact:
        return exact
    try:
        return float(psutil.Process(pid).create_time())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def alive(pid: int, born: Birth) -> bool:
    """Whether a process of that id lives that was born then."""
    try:
        process = psutil.Process(pid)
        if isinstance(born, str):
            same = _exact(pid) == born
        else:
            same = abs(process.create_time() - born) < NEAR_S
        return same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _exact(pid: int) -> str:
    """Boot and ticks; empty where the machine does not say, or the process is gone."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        # The name of its program stands in brackets and may hold anything; 20 fields later are the ticks.
        ticks = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
    return f"{boot}:{ticks}"
