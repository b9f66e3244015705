# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = ["geo-assets[gpu]"]
# ///
"""One training run as a program: a spec and an environment's address in, an adapter out.

    python -m geo_assets.training.grpo --spec spec.json --environment URL --base DIR_OR_REPO --out DIR

Writes `metrics.jsonl`, `timings.jsonl` and `rollouts.jsonl` line by line, prints each step's line, and ends
with `adapter/` and `result.json`. The same program runs on two CPU cores and under torchrun on several cards;
it talks to the environment over the network like every other player.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

for _name, _value in (
    ("TRL_EXPERIMENTAL_SILENCE", "1"),
    ("TOKENIZERS_PARALLELISM", "false"),
    ("HF_HUB_DISABLE_TELEMETRY", "1"),
):
    os.environ.setdefault(_name, _value)

# ruff: noqa: E402
from env_service.canonical import atomic_write
from env_service.client import GeoGuessrEnv, num_tasks, schema
from env_service.errors import GeoError
from geo_assets.config.runs import RunSpec
from geo_assets.training.step_log import StepLog
from geo_assets.training.weights import weights_sha256

SPLIT = "train"
ADAPTER, RESULT, CHECKPOINTS = "adapter", "result.json", "checkpoints"
LAST_STEPS = 5


def train(run: RunSpec, environment: str, base: str, revision: str | None, out: Path) -> dict[str, Any]:
    """Train one adapter.

    Args:
        run: the spec.
        environment: address of the service.
        base: folder or repository of the model to start from.
        revision: its revision, which the adapter names too.
        out: where everything is written.

    Returns:
        What `result.json` holds.

    Raises:
        GeoError: the environment does not fit the run, or no rollout could be played.
    """
    tasks = check_environment(run, environment)  # first: the packages below take seconds to import
    local = Path(base).is_dir()
    if local:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch

    if not torch.cuda.is_available():
        torch.set_num_threads(1)  # two threads on busy cores wait for each other: measured seven times slower
    from datasets import Dataset
    from transformers import PrinterCallback, set_seed
    from transformers.utils import logging

    from geo_assets.training.configuration import load_base, lora_config, trainer_config
    from geo_assets.training.episode_link import Line
    from geo_assets.training.trainer import RolloutTrainer
    from geo_assets.training.trl_environment import Rules, TrainingEnvironment

    logging.set_verbosity_error()
    base_name = run.base if local else base  # a folder's path says nothing about the model
    began = time.monotonic()
    set_seed(run.seed)
    processor, model = load_base(base, None if local else revision)
    rules = Rules(
        line=Line(environment),
        tools=schema(environment)["tools"],
        max_turns=run.max_turns,
        view_px=run.view_px,
        curve=run.reward_curve(),
        refusal_charge=run.refusal_charge,
    )
    out.mkdir(parents=True, exist_ok=True)
    log = StepLog(out, run.scale_rewards, rules.curve.name, _tell)
    trainer = RolloutTrainer(
        step_log=log,
        model=model,
        args=trainer_config(run, out / CHECKPOINTS, processor, int(os.environ.get("WORLD_SIZE", "1"))),
        train_dataset=Dataset.from_list(rows(tasks, run.generation_batch // run.generations)),
        processing_class=processor,
        environment_factory=lambda: TrainingEnvironment(rules),
        peft_config=lora_config(run),
    )
    trainer.remove_callback(PrinterCallback)
    try:
        trainer.train()
    finally:
        trainer.close_environments()
    if not trainer.accelerator.is_main_process:
        return {}
    save_adapter(trainer.accelerator.unwrap_model(trainer.model), out / ADAPTER, base_name, revision)
    result = {
        "run": run.slug,
        "seed": run.seed,
        "base": base_name,
        "base_revision": revision,
        "curve": rules.curve.name,
        "tasks": tasks,
        "tasks_touched": len(log.touched),
        "weights_sha256": weights_sha256(out / ADAPTER),
        **summary(log),
    }
    atomic_write(out / RESULT, json.dumps(result, indent=2, allow_nan=False).encode() + b"\n")
    print(json.dumps({"done": True, "seconds": round(time.monotonic() - began, 1)}), flush=True)
    return result


def save_adapter(model: Any, folder: Path, base_name: str, revision: str | None) -> None:
    """Write the adapter, which names its base and the base's revision.

    PEFT names the folder that the base was read from, whatever it is told, and writes a card that does too.
    """
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"
    body = json.loads(path.read_text(encoding="utf-8"))
    body |= {"base_model_name_or_path": base_name, "revision": revision}
    atomic_write(path, json.dumps(body, indent=2, sort_keys=True).encode() + b"\n")


def check_environment(run: RunSpec, environment: str) -> int:
    """Number of training tasks.

    Raises:
        GeoError: the service is not there, has no training task, or plays with another turn budget.
    """
    tasks = num_tasks(environment, SPLIT)
    if tasks < 1:
        raise GeoError(f"The environment at {environment} has no task in split {SPLIT}")
    with GeoGuessrEnv(environment) as session:
        turns = session.reset(split=SPLIT, index=0).observation.steps_remaining
    if turns != run.max_turns:
        raise GeoError(
            f"Run {run.slug} trains for {run.max_turns} turns, and the environment plays {turns}",
            "Set max_turns of the run in runs.yaml to the environment's",
        )
    return tasks


def rows(tasks: int, at_once: int) -> list[dict[str, Any]]:
    """The data set: addresses of tasks. The opening message is the environment's, so the prompt is empty.

    Args:
        tasks: how many there are.
        at_once: how many a generation batch takes; fewer tasks than that are repeated.
    """
    times = max(1, -(-at_once // tasks))
    empty = [{"role": "user", "content": ""}]
    return [{"prompt": empty, "split": SPLIT, "index": index} for index in range(tasks)] * times


def summary(log: StepLog) -> dict[str, Any]:
    """Figures of a finished run: its first and last steps, and the spread within its groups."""
    lines = log.lines
    figures: dict[str, Any] = {"steps": len(lines), "rollouts": sum(line["rollouts"] for line in lines)}
    for name in ("reward", "no_guess_share", "looks", "turns", "median_km", "entropy"):
        figures[f"first_{name}"] = _mean(lines[:LAST_STEPS], name)
        figures[f"final_{name}"] = _mean(lines[-LAST_STEPS:], name)
    for name in ("lost", "cut", "reconnects", "refused", "invalid"):
        figures[name] = sum(line[name] for line in lines)
    spreads = [spread for line in lines for spread in line["group_spreads"] if spread is not None]
    if spreads:
        middle = statistics.median(spreads)
        figures["median_group_spread"] = round(middle, 6)
        figures["groups_without_spread"] = sum(spread == 0 for spread in spreads)
        multiplier = log.multiplier(middle)
        figures["advantage_multiplier"] = round(multiplier, 3) if multiplier == multiplier else None
    return figures


def _mean(lines: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [line[name] for line in lines if line.get(name) is not None]
    return round(statistics.fmean(values), 6) if values else None


def _tell(line: Mapping[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def _leave_with_parent() -> None:
    """Watch standard input from a thread: when it closes, whoever started this is gone."""

    def watch() -> None:
        # Not through `sys.stdin`, whose lock a thread that waits would take with it when the program ends.
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="leave-with-parent", daemon=True).start()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 when the adapter is written, 2 for a fault its reader can mend."""
    parser = argparse.ArgumentParser(
        prog="python -m geo_assets.training.grpo", description="Train one adapter."
    )
    parser.add_argument("--spec", type=Path, required=True, help="the run's spec, JSON")
    parser.add_argument("--environment", required=True, help="address of the environment")
    parser.add_argument("--base", required=True, help="folder or Hub repository of the base model")
    parser.add_argument("--revision", help="revision of the base model")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--exit-with-parent", action="store_true", help="leave when standard input closes")
    options = parser.parse_args(arguments)
    if options.exit_with_parent:
        _leave_with_parent()
    try:
        try:
            run = RunSpec.model_validate_json(options.spec.read_bytes())
        except (OSError, ValueError) as error:
            raise GeoError(f"{options.spec} is no spec of a run ({error})") from None
        train(run, options.environment, options.base, options.revision, options.out)
    except GeoError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
