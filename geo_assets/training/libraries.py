"""What a training depends on besides our own code, and what it costs as long as none has been recorded."""

from geo_assets.config.prices import load_prices
from geo_assets.config.runs import RunSpec
from geo_assets.lineage.costs import Estimate

_NAMES = ("peft", "tokenizers", "torch", "transformers", "trl")
TRAINING_LIBRARIES = tuple(f"deploy/locks/cpu.txt#{name}" for name in _NAMES)
"""Both locks agree on these, so that the CPU's speaks for the GPU's."""

A100_HOURS_PER_TASK = 0.04
"""Per task of an optimizer step with its eight rollouts: published as 1,000 steps of one task in ten hours on
four cards."""
CPU_SECONDS_PER_STEP = 1.5
CPU = "cpu"
LIMIT_FACTOR, CPU_LIMIT_FACTOR, START_LIMIT_S = 2.0, 20.0, 1800.0
"""A job's time limit: its estimate times a factor, and seconds for everything around the steps. This machine
costs nothing and may be slow."""
_DECIDING = {"base", "hardware", "max_turns", "view_px", "max_completion_length", "num_iterations"}
"""Fields of a run that decide what an episode of it costs."""


def training_estimate(spec: RunSpec) -> Estimate:
    """What a run costs, by its steps."""
    work, like = float(spec.steps * spec.episodes_per_step), spec.model_dump(mode="json", include=_DECIDING)
    if spec.hardware.lower() == CPU:
        return Estimate(seconds=30.0 + CPU_SECONDS_PER_STEP * spec.steps, work=work, like=like)
    hours = A100_HOURS_PER_TASK * spec.tasks_per_step * spec.generations / 8 * spec.steps
    prices = load_prices()
    flavor = prices.flavor_of(spec.hardware)
    seconds = 3600.0 * hours / max(1, prices.flavors[flavor].gpus)
    gpu_seconds, usd = prices.gpu_seconds(flavor, seconds), prices.usd(flavor, seconds)
    like["usd_per_hour"] = prices.flavors[flavor].usd_per_hour
    return Estimate(seconds, gpu_seconds, usd, work, like)


def time_limit_s(spec: RunSpec) -> float:
    """Seconds after which a run's job is stopped, well beyond what the run is expected to take."""
    factor = CPU_LIMIT_FACTOR if spec.hardware.lower() == CPU else LIMIT_FACTOR
    return training_estimate(spec).seconds * factor + START_LIMIT_S
