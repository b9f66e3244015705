"""A step does not outlive the run that it belongs to.

The multiprocess executor runs each step in a process of its own. When the run's process is killed, `kill -9`
or the out-of-memory killer, such a step would go on by itself: writing where the next run writes, and staying
behind for ever once it has nobody to report to. So each step watches the process that started it.
"""

import multiprocessing
import os
import signal
import threading
from functools import cache
from multiprocessing.process import BaseProcess


@cache
def leave_with_the_run() -> bool:
    """Watch the run's process from a thread, and end this one when it is gone; once per process.

    Returns:
        Whether there is anything to watch: not where the step runs in the run's own process.
    """
    run = multiprocessing.parent_process()
    if run is None:
        return False
    threading.Thread(target=_watch, args=(run,), name="leave-with-the-run", daemon=True).start()
    return True


def _watch(run: BaseProcess) -> None:
    run.join()  # returns when the other end of the pipe that both were born with is closed
    # As sudden as what happened to the run: stages keep what they finished, servers see their input close.
    os.kill(os.getpid(), signal.SIGKILL)
