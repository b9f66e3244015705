"""An executor that hands each step to a worker by its command line, as those of ECS and Kubernetes do.

A worker gets nothing but the words `dagster api execute_step …` and its environment. Its process id is
written to `$WORKERS/<step>.pid`, so that a test can take a machine away from under it.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from dagster._core.definitions.executor_definition import multiple_process_executor_requirements
from dagster._core.events import DagsterEvent
from dagster._core.execution.retries import RetryMode
from dagster._core.executor.init import InitExecutorContext
from dagster._core.executor.step_delegating import (
    CheckStepHealthResult,
    StepDelegatingExecutor,
    StepHandler,
    StepHandlerContext,
)


class Workers(StepHandler):
    """Workers on this machine, one a step."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def name(self) -> str:
        """How a run's events call it."""
        return "workers"

    def launch_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        """Start a worker with the step's command line."""
        (step,) = step_handler_context.execute_step_args.step_keys_to_execute or [""]
        folder = Path(os.environ["WORKERS"])
        command = [sys.executable, "-m", *step_handler_context.execute_step_args.get_command_args()]
        with (folder / f"{step}.log").open("ab") as log:
            worker = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._running[step] = worker
        (folder / f"{step}.pid").write_text(str(worker.pid))
        yield from ()

    def check_step_health(self, step_handler_context: StepHandlerContext) -> CheckStepHealthResult:
        """Whether the worker of a step is still there."""
        (step,) = step_handler_context.execute_step_args.step_keys_to_execute or [""]
        code = self._running[step].poll()
        if code:
            return CheckStepHealthResult.unhealthy(f"the worker of {step} left with {code}")
        return CheckStepHealthResult.healthy()

    def terminate_step(self, step_handler_context: StepHandlerContext) -> Iterator[DagsterEvent]:
        """End the worker of a step."""
        (step,) = step_handler_context.execute_step_args.step_keys_to_execute or [""]
        self._running[step].terminate()
        yield from ()


@dg.executor(name="workers", requirements=multiple_process_executor_requirements())
def workers(init_context: InitExecutorContext) -> StepDelegatingExecutor:
    """Named by GEO_EXECUTOR=worker_executor:workers."""
    return StepDelegatingExecutor(
        Workers(),
        retries=RetryMode.DISABLED,
        max_concurrent=4,
        check_step_health_interval_seconds=1,
        sleep_seconds=0.1,
    )
