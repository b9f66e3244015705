"""One Dagster run of some assets from the command line, telling all the way how far it is.

The same run that `dagster asset materialize --select NAME` makes, in the same instance; only what is told
differs: one line per step and per sign of progress, instead of Dagster's debug log.
"""

import fcntl
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from env_service.errors import GeoError

if TYPE_CHECKING:
    import dagster as dg
    from dagster import DagsterInstance
    from dagster_shared.error import SerializableErrorInfo

    from geo_assets.lineage.assets import Stage

POLL_S = 0.4
QUIET_S = 5.0


class Ran:
    """How a run ended.

    Attributes:
        success: every asset was built.
        failed: how many were not.
        interrupted: it was stopped from outside.
        log: where Dagster's own log went.
        causes: how many failures were told with what to do about them.
    """

    def __init__(self, success: bool, failed: int, interrupted: bool, log: Path, causes: int = 0) -> None:
        self.success, self.failed, self.interrupted, self.log = success, failed, interrupted, log
        self.causes = causes

    def refuse(self, wanted: int) -> None:
        """Say that it failed. What to do was told with each cause; a second advice would bury that one.

        Raises:
            GeoError: an asset was not built.
        """
        if not self.success:
            raise GeoError(
                f"{self.failed} of {wanted} assets failed or were skipped (Dagster's log: {self.log})",
                "" if self.causes else "Read its end, and run the same command again",
            )


def run_assets(
    instance: "DagsterInstance",
    stage: "Stage",
    keys: Sequence["dg.AssetKey"],
    tell: Callable[[str], None],
) -> Ran:
    """Materialize some assets in one run.

    Args:
        instance: where it is recorded.
        stage: the profile; Dagster's log goes to `build.log` of its home.
        keys: the assets.
        tell: given every line of progress.
    """
    import dagster as dg

    from geo_assets.lineage.ecs_tasks import task_tags
    from geo_assets.lineage.run_processes import BUILD, remember

    log = stage.settings.home / "build.log"
    token = uuid.uuid4().hex
    tags = {BUILD: token, **task_tags(instance)}
    # Before there is a run: this process may be killed at any moment.
    remember(stage.settings.home, "build", token)
    watcher = Watcher(instance, token, len(keys), tell)
    watcher.start()
    try:
        # Dagster's own log, from this process and from every step's, goes to a file: what is
        # told here is the run's events.
        with stderr_to(log):
            result = dg.execute_job(
                dg.reconstructable(whole_graph_job),
                instance,
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
                asset_selection=list(keys),
                tags=tags,
                raise_on_error=False,
            )
    finally:
        watcher.finish()
    return Ran(result.success, watcher.failed, watcher.interrupted, log, watcher.causes)


@contextmanager
def opened_instance(stage: "Stage") -> Iterator["DagsterInstance"]:
    """The instance of the profile's home, its folder and tables made where they are missing."""
    from dagster import DagsterInstance

    home = Path(os.environ.get("DAGSTER_HOME") or stage.settings.home / "dagster")
    prepare_dagster_home(home)
    with DagsterInstance.from_config(str(home)) as instance:
        with alone(home / ".init.lock"):
            # The first reader of a fresh instance makes its tables; two at once would each make them.
            instance.get_run_records(limit=1)
        yield instance


def selected(graph: Any, text: str) -> set[str] | None:
    """Names of the assets that a selection means; None for all.

    Raises:
        GeoError: it cannot be read, or means no asset.
    """
    import dagster as dg

    if not text:
        return None
    try:
        keys = dg.AssetSelection.from_string(text).resolve(graph)
    except Exception as error:
        # Dagster has no one class for what can be wrong with a selection.
        raise GeoError(
            f"The selection {text!r} cannot be read ({' '.join(str(error).split())[:200]})",
            "Try one like adapter_run3, '*board_table' or 'group:reports'",
        ) from None
    if not keys:
        known = sorted(key.to_user_string() for key in graph.get_all_asset_keys())
        raise GeoError(f"The selection {text!r} means no asset", f"Known: {', '.join(known)}")
    return {key.to_user_string() for key in keys}


def whole_graph_job() -> "dg.JobDefinition":
    """The job over every asset, remade in each process that runs a step."""
    from geo_assets.definitions import WHOLE_GRAPH, build_definitions, load_stage

    return build_definitions(load_stage()).resolve_job_def(WHOLE_GRAPH)


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold a file lock; the kernel frees it with the process."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Send standard error, of this process and of its children, to the end of a file for a while."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as sink:
            os.dup2(sink.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def prepare_dagster_home(home: Path) -> None:
    """Make the folder of the Dagster instance, with the project's `dagster.yaml` in it."""
    from geo_assets.config.settings import REPOSITORY

    home.mkdir(parents=True, exist_ok=True)
    config = home / "dagster.yaml"
    # One that leads nowhere is of a checkout that was moved or removed since.
    if not config.exists() and (REPOSITORY / "dagster.yaml").exists():
        # In one step, whoever else does the same at this moment.
        link = home / f".dagster.yaml.{uuid.uuid4().hex}"
        link.symlink_to(REPOSITORY / "dagster.yaml")
        link.replace(config)
    os.environ["DAGSTER_HOME"] = str(home)


class Watcher(threading.Thread):
    """Prints the run's events as they come; steps write them from processes of their own."""

    def __init__(
        self, instance: "DagsterInstance", token: str, total: int, tell: Callable[[str], None]
    ) -> None:
        super().__init__(daemon=True)
        self._instance, self._token, self._total, self._tell = instance, token, total, tell
        self._cursor: str | None = None
        self._run_id = ""
        self._finished = threading.Event()
        self._began = time.monotonic()
        self._step_began: dict[str, float] = {}
        self._running: dict[str, float] = {}
        self._spoke = time.monotonic()
        self.done = 0
        self.causes = 0
        self.interrupted = False

    @property
    def failed(self) -> int:
        return self._total - self.done

    def run(self) -> None:
        try:
            while not self._finished.is_set():
                self._read()
                self._tell_still_running()
                self._finished.wait(POLL_S)
            self._read()
        except Exception as error:
            # What fails here, a full disk say, fails in the run too, and is told there.
            self._say("progress", f"cannot be read any more ({type(error).__name__})")

    def finish(self) -> None:
        self._finished.set()
        self.join()

    def _read(self) -> None:
        from dagster import RunsFilter

        from geo_assets.lineage.run_processes import BUILD

        if not self._run_id:
            runs = self._instance.get_run_records(RunsFilter(tags={BUILD: self._token}), limit=1)
            if not runs:
                return
            self._run_id = runs[0].dagster_run.run_id
        while True:
            page = self._instance.get_records_for_run(self._run_id, cursor=self._cursor, limit=200)
            self._cursor = page.cursor
            for record in page.records:
                self._show(record.event_log_entry)
            if not page.has_more:
                return

    def _show(self, entry: object) -> None:
        from dagster import DagsterEventType, EventLogEntry

        assert isinstance(entry, EventLogEntry)
        event = entry.dagster_event
        step = (entry.step_key or "").replace("_and_", ", ")
        if event is None:
            if int(entry.level) >= logging.INFO and entry.user_message:
                self._say(step, entry.user_message)
            return
        kind = event.event_type
        if kind == DagsterEventType.STEP_START:
            self._step_began[entry.step_key or ""] = self._running[step] = entry.timestamp
        elif kind in {DagsterEventType.STEP_SUCCESS, DagsterEventType.STEP_FAILURE}:
            self._running.pop(step, None)
        if kind == DagsterEventType.ASSET_MATERIALIZATION:
            self.done += 1
            took = entry.timestamp - self._step_began.get(entry.step_key or "", entry.timestamp)
            name = event.asset_key.to_user_string() if event.asset_key else step
            self._say(name, f"done in {took:.1f} s ({self.done} of {self._total})")
        elif kind == DagsterEventType.ASSET_CHECK_EVALUATION:
            check = event.asset_check_evaluation_data
            if not check.passed:
                self._say(step, f"check {check.check_name} FAILED")
        elif kind == DagsterEventType.STEP_FAILURE:
            data = event.step_failure_data
            said = data.user_failure_data.description if data.user_failure_data else ""
            cause = said or _innermost(data.error)
            self.interrupted |= "DagsterExecutionInterruptedError" in cause
            self.causes += bool(said)
            self._say(step, "interrupted" if self.interrupted else f"FAILED: {cause}")

    def _tell_still_running(self) -> None:
        if self._running and time.monotonic() - self._spoke > QUIET_S:
            now = time.time()
            steps = ", ".join(f"{step} ({now - began:.0f} s)" for step, began in self._running.items())
            self._say("running", steps)

    def _say(self, who: str, what: str) -> None:
        self._spoke = time.monotonic()
        self._tell(f"[{time.monotonic() - self._began:6.1f} s] {who}: {what}")


def _innermost(error: "SerializableErrorInfo | None") -> str:
    """The first cause of a step's failure: what Dagster wraps around it says nothing."""
    while error is not None and error.cause is not None:
        error = error.cause
    return " ".join(error.message.split()) if error is not None else "unknown cause"
