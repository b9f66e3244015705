"""The two arms of an adapter's sweep: the frozen base and the adapter, alike in everything but the weights.

They follow from the training run: the same turn budget, temperature and reply length as the rollouts it was
trained on, no truncation of the distribution, thinking off. A checkpoint's gain is measured against the base
arm of its own sweep and against no other, so every adapter sweep plays its base arm itself.
"""

from dataclasses import dataclass

from geo_assets.config.arms import ArmSpec, BoardSpec, Runtime, Sampling
from geo_assets.config.runs import RunSpec, load_runs
from geo_assets.config.settings import Profile

PASSES = 4
WORKERS = 16
ADAPTER_PREFIX = "adapter_"
UNTRUNCATED = {"top_k": 0, "chat_template_kwargs": {"enable_thinking": False}}
"""What Qwen's own generation settings would otherwise say: top-k 20 and thinking on."""


@dataclass(frozen=True)
class AdapterSweep:
    """One sweep of two arms.

    Attributes:
        run: the training run of the adapter.
        profile: where it is swept.
        base, adapter: the arms; the model asked for is the arm's slug.
    """

    run: RunSpec
    profile: Profile
    base: ArmSpec
    adapter: ArmSpec

    @property
    def slug(self) -> str:
        """Name of the sweep, of its board and of the adapter's asset."""
        return self.adapter.slug

    @property
    def arms(self) -> tuple[ArmSpec, ArmSpec]:
        """Base first."""
        return self.base, self.adapter

    @property
    def board(self) -> BoardSpec:
        """The table of the two."""
        return BoardSpec(
            label=f"{self.run.label}: adapter and its base",
            profiles=(self.profile,),
            base=self.base.slug,
            ladder=(self.adapter.slug, self.base.slug),
        )


def adapter_sweeps(profile: Profile) -> tuple[AdapterSweep, ...]:
    """The sweep of every adapter that the profile has, in the order of `runs.yaml`.

    Raises:
        ArmsFileError: the runs file cannot be used.
    """
    return tuple(adapter_sweep_of(run, profile) for run in load_runs(profile).assets)


def adapter_sweep_of(run: RunSpec, profile: Profile) -> AdapterSweep:
    """The sweep of one run's adapter."""
    adapter = f"{ADAPTER_PREFIX}{run.slug}"
    base = ArmSpec(
        slug=run.base,
        label=run.base.replace("_", " ").capitalize(),
        kind="base",
        provider="self_hosted",
        model=run.base,
        protocol="tools",
        k=PASSES,
        max_turns=run.max_turns,
        sampling=Sampling(
            temperature=run.temperature, top_p=1.0, max_tokens=run.max_turn_length, extra=UNTRUNCATED
        ),
        profiles=(profile,),
        runtime=Runtime(workers=WORKERS),
    )
    trained = base.model_copy(
        update={"slug": adapter, "label": f"Adapter {run.slug}", "kind": "trained", "model": adapter}
    )
    return AdapterSweep(run, profile, base, trained)
