"""What a training depends on besides our own code, and what it costs as long as none has been recorded."""

from geo_assets.config.runs import RunSpec
from geo_assets.lineage.costs import Estimate

_NAMES = ("peft", "tokenizers", "torch", "transformers", "trl")
TRAINING_LIBRARIES = tuple(f"deploy/locks/cpu.txt#{name}" for name in _NAMES)
"""Both locks agree on these, so that the CPU's speaks for the GPU's."""

A100_HOURS_PER_TASK = 0.04
"""Per task of an optimizer step with its eight rollouts: published as 1,000 steps of one task in ten hours on
four cards."""
USD_PER_A100_HOUR = 2.5
CPU_SECONDS_PER_STEP = 1.5
CPU = "cpu"


def training_estimate(spec: RunSpec) -> Estimate:
    """What a run costs, by its steps."""
    if spec.hardware.lower() == CPU:
        return Estimate(seconds=30.0 + CPU_SECONDS_PER_STEP * spec.steps)
    hours = A100_HOURS_PER_TASK * spec.tasks_per_step * spec.generations / 8 * spec.steps
    cards = int(spec.hardware.split("x")[0]) if spec.hardware[:1].isdigit() else 1
    return Estimate(seconds=3600.0 * hours / cards, gpu_seconds=3600.0 * hours, usd=USD_PER_A100_HOUR * hours)
