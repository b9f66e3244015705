"""Whose process a run lives in, so that a run whose process was killed does not stay in progress for ever.

Dagster hears of a killed run only from launchers that start runs on other machines. One that works in its
own process stays `STARTED` after `kill -9`: its slot of a pool is never free again, sensors wait for it, and
jobs of its assets look as if somebody waited for them. So the process of every run holds a lock on a file in
`$GEO_HOME/.running`, which names its runs and which the kernel takes back with it. A lock that can be taken
means that nobody is left who could end these runs. No process id can be mistaken for another's, no clock is
read, and what holds on one machine holds between machines and containers that share the folder.
"""

import errno
import fcntl
import os
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from env_service.errors import GeoError
from geo_assets.lineage.ecs_tasks import TASK, task_tags

FOLDER = ".running"
BUILD = "geo/build"
"""Tag of a run that a command of ours makes: a token that is known before the run is."""
IN_PROGRESS = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
HELD = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
"""What a lock that somebody holds answers with."""
KEPT_S = 30 * 86400.0
"""How long a file whose runs are not known is kept: they may be of another instance with the same home."""
GONE = (
    "The process of this run is gone: it was killed, or its machine went down. "
    "The same command again goes on from what was kept."
)
_own: dict[Path, tuple[int, Path]] = {}
_guard = threading.Lock()


def remember(home: Path, kind: Literal["run", "build"], name: str) -> None:
    """Note, for as long as this process lives and after it, that a run lives in it.

    Args:
        home: `GEO_HOME`.
        kind: what the name is: a run's id, or the value of its tag `BUILD`.

    Raises:
        GeoError: nothing can be written or locked there.
    """
    with _guard:
        try:
            if home not in _own:
                _own[home] = _locked(home / FOLDER)
            os.write(_own[home][0], f"{kind} {name}\n".encode())
        except OSError as error:
            raise GeoError(
                f"{home / FOLDER} cannot be written or locked ({error.strerror or error})",
                "Point GEO_HOME at a folder that you may write to, on a file system with locks",
            ) from error


def settle(instance: DagsterInstance, home: Path) -> list[str]:
    """End the runs whose process is gone: they are recorded as failed, and their slots of pools are free.

    Args:
        instance: where they are recorded; runs of another are left to that one.
        home: `GEO_HOME` of their processes.

    Returns:
        Ids of the runs that were ended.
    """
    ended: list[str] = []
    own = _own.get(home, (0, None))[1]
    for path in sorted((home / FOLDER).glob("[!.]*")):
        if path != own:
            ended += _settle(instance, path)
    return ended


class Followed(dg.Executor):
    """An executor that first notes the run and its process, and ends the runs of processes that are gone.

    This is the first of our code that runs in a run's process, whoever started it: a command of ours,
    `dagster asset materialize`, Dagster's page or its daemon. It comes before any step waits for a pool.
    """

    def __init__(self, inner: dg.Executor, home: Path) -> None:
        self._inner, self._home = inner, home

    @property
    def retries(self) -> Any:
        """Those of the executor that does the work."""
        return self._inner.retries

    @property
    def step_dependency_config(self) -> Any:
        """That of the executor that does the work."""
        return self._inner.step_dependency_config

    def execute(self, plan_context: Any, execution_plan: Any) -> Iterator[Any]:
        """Have the steps executed."""
        run, instance = plan_context.dagster_run, plan_context.instance
        remember(self._home, "run", run.run_id)
        if TASK not in run.tags and (tags := task_tags(instance)):
            instance.add_run_tags(run.run_id, tags)
        settle(instance, self._home)
        yield from self._inner.execute(plan_context, execution_plan)


def followed(executor: dg.ExecutorDefinition, home: Path) -> dg.ExecutorDefinition:
    """The same executor, whose runs are ended when their process is gone.

    Args:
        home: `GEO_HOME`.
    """
    create = executor.executor_creation_fn
    assert create is not None, executor.name
    return dg.ExecutorDefinition(
        name=executor.name,
        config_schema=cast(Any, executor.config_schema),
        requirements=executor.get_requirements,
        executor_creation_fn=lambda context: Followed(create(context), home),
        description=executor.description,
    )


def _locked(folder: Path) -> tuple[int, Path]:
    """A file of this process's own, locked before others can see it."""
    folder.mkdir(parents=True, exist_ok=True)
    name = uuid.uuid4().hex
    hidden, path = folder / f".{name}", folder / name
    handle = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        hidden.rename(path)
    except OSError:
        os.close(handle)
        hidden.unlink(missing_ok=True)
        raise
    return handle, path


def _settle(instance: DagsterInstance, path: Path) -> list[str]:
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return []  # settled by somebody else; another user's
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.fdopen(os.dup(handle)) as lines:
            noted = [line.split() for line in lines if line.endswith("\n")]
        runs, all_known = _runs(instance, noted)
        living = [run for run in runs if run.status in IN_PROGRESS]
        for run in living:
            _end(instance, run)
        if all_known or time.time() - os.fstat(handle).st_mtime > KEPT_S:
            path.unlink(missing_ok=True)
        return [run.run_id for run in living]
    except OSError as error:
        if error.errno in HELD:
            return []  # its process lives, or another one is settling it
        raise
    finally:
        os.close(handle)


def _runs(instance: DagsterInstance, noted: list[list[str]]) -> tuple[list[dg.DagsterRun], bool]:
    """Runs that a file names, and whether this instance knows all of them."""
    ids = sorted({name for kind, name in noted if kind == "run"})
    found = {run.run_id: run for run in instance.get_runs(RunsFilter(run_ids=ids))} if ids else {}
    all_known = len(found) == len(ids)
    for token in (name for kind, name in noted if kind == "build"):
        # A run that is executed again has its tags from the first one, and a process of its own.
        tagged = instance.get_runs(RunsFilter(tags={BUILD: token}))
        made = {run.run_id: run for run in tagged if run.parent_run_id is None}
        found |= made
        all_known &= bool(made)
    return list(found.values()), all_known


def _end(instance: DagsterInstance, run: dg.DagsterRun) -> None:
    storage = instance.event_log_storage
    if storage.supports_global_concurrency_limits:
        # First: a run that is recorded as ended is not looked at again.
        storage.free_concurrency_slots_for_run(run.run_id)
    if run.status == DagsterRunStatus.CANCELING:
        instance.report_run_canceled(run, GONE)
    else:
        instance.report_run_failed(run, GONE)


def _forget() -> None:
    """In a fork: the lock is the parent's, and must not outlive it."""
    for handle, _ in _own.values():
        os.close(handle)
    _own.clear()


os.register_at_fork(after_in_child=_forget)
