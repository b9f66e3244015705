"""TRL's GRPO trainer over rollouts that see pictures, with what TRL 1.16 gets wrong put right.

Each override below says which fault it is for. What is common to them: TRL goes on silently where a rollout
went wrong (a mismatch drops every picture of the batch, an overlong result ends the episode, a call with a
wrong argument never reaches the environment), and a policy learns from whatever goes on silently.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from trl import GRPOTrainer

from env_service.errors import GeoError
from geo_assets.training.step_log import Rollout, StepLog
from geo_assets.training.trl_environment import Blocks, TrainingEnvironment

IMAGE_FIELDS = ("pixel_values", "image_grid_thw")


class PlaceholderMismatch(GeoError):
    """A conversation holds more or fewer picture tokens than its pictures have features."""


class NothingToLearnFrom(GeoError):
    """Every rollout of a step was lost or cut off."""


class AnyTool(Mapping[str, Callable[..., Blocks]]):
    """A rollout's tools as TRL looks them up: every name is one, and the service judges the call.

    TRL calls `tools[name](**arguments)` and answers itself where the name is unknown or an argument does not
    fit, so that such a call would cost no turn. Here all of them are played.
    """

    def __init__(self, environment: TrainingEnvironment) -> None:
        self._environment = environment

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)

    def __getitem__(self, name: str) -> Callable[..., Blocks]:
        def call(**arguments: Any) -> Blocks:
            return self._environment._call(name, **arguments)

        return call

    def __iter__(self) -> Any:
        return iter(self._environment._ops)

    def __len__(self) -> int:
        return len(self._environment._ops)


class RolloutTrainer(GRPOTrainer):
    """`GRPOTrainer` with one `TrainingEnvironment` per rollout.

    Args:
        step_log: where finished rollouts and steps are written.
        arguments: those of `GRPOTrainer`.
    """

    def __init__(self, *, step_log: StepLog, **arguments: Any) -> None:
        self._step_log = step_log
        super().__init__(**arguments)

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[Any, Any, dict[str, Any]]:
        """With environments the image fields stay lists, and TRL fails on them in a turn without pictures."""
        ids, images, fields = super()._tokenize_prompts(prompts)
        for name in IMAGE_FIELDS:
            if name in fields and not isinstance(fields[name], torch.Tensor):
                fields[name] = torch.as_tensor(np.array(fields[name]))
        return ids, images, fields

    def _generate(self, prompts: list[Any]) -> Any:
        """Show each rollout the tools that its own task offers, in the service's words and order."""
        self._batch_environments = list(range(len(prompts)))
        self._env_tools = {i: rollout._definitions for i, rollout in enumerate(self.environments)}
        return super()._generate(prompts)

    def _generate_single_turn(
        self, prompt_ids: Any, images: Any, fields: dict[str, Any], *more: Any, **named: Any
    ) -> Any:
        """Every conversation that is about to be continued is counted first."""
        if "image_grid_thw" in fields:
            self._count(prompt_ids, fields["image_grid_thw"], [len(shown or ()) for shown in images])
        return super()._generate_single_turn(prompt_ids, images, fields, *more, **named)

    def _tool_call_loop(self, prompts: Any, prompt_ids: Any, completion_ids: Any, *more: Any) -> Any:
        """Have every call judged and charged by the service, and end each rollout as a sweep would.

        TRL counts a call as failed when it raises; here none does, so the environment's own count is added.
        """
        self._sync_tool_dicts = [AnyTool(rollout) for rollout in self.environments]
        looped = super()._tool_call_loop(prompts, prompt_ids, completion_ids, *more)
        mask, completions, ids, logprobs, calls, failures, pictures = looped
        for rollout, said in zip(self.environments, completions, strict=True):
            last = said[-1]
            if last.get("role") == "assistant" and not last.get("tool_calls"):
                rollout._answer(str(last.get("content") or ""))
            else:  # its last call was never played: the result would have outgrown the length
                rollout._cut_off()
        failures += sum(rollout._trace.invalid + rollout._trace.refused for rollout in self.environments)
        return mask, completions, ids, logprobs, calls, failures, pictures

    def _calculate_rewards(self, *inputs: Any) -> Any:
        """A rollout without reward is left out of its group: TRL gives it no advantage. But not all of them.

        Raises:
            NothingToLearnFrom: no rollout of the step has a reward.
        """
        rewards = super()._calculate_rewards(*inputs)
        if bool(torch.isnan(rewards).all()):
            why = next((r._trace.lost for r in self.environments if r._trace.lost), "")
            if why:
                raise NothingToLearnFrom(
                    f"Every rollout of step {self.state.global_step + 1} was lost. {why}",
                    "Look whether the environment runs and is reachable, and start the training again",
                )
            raise NothingToLearnFrom(
                f"Every rollout of step {self.state.global_step + 1} outgrew max_completion_length",
                "Raise it in runs.yaml, or show smaller pictures",
            )
        return rewards

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        """Check what the model will be trained on, and write the rollouts down."""
        batch = super()._generate_and_score_completions(inputs)
        if "image_grid_thw" not in batch:
            raise PlaceholderMismatch("TRL has dropped the pictures of a batch, whose tokens do not fit them")
        pads = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        self._count(pads, batch["image_grid_thw"], batch["num_images"])
        own = [
            Rollout.of(rollout._trace, advantage)
            for rollout, advantage in zip(self.environments, batch["advantages"].tolist(), strict=True)
        ]
        rollouts = gather_object(own)
        if self.accelerator.is_main_process:
            self._step_log.add(self.state.global_step + 1, rollouts, self.num_generations)
        return batch

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Write the step's figures; TRL's own logging goes on as it does."""
        super().log(logs, start_time)
        if "reward" in logs and self.accelerator.is_main_process:
            self._step_log.write(self.state.global_step, logs)

    def _count(self, rows: Any, grids: torch.Tensor, pictures: Sequence[int]) -> None:
        pad, merge = self._image_pad_token_id, self.processing_class.image_processor.merge_size
        check_placeholders(rows, int(pad), grids, pictures, int(merge))

    def close_environments(self) -> None:
        """End all sessions."""
        for pool in self._environment_pool.values():
            for rollout in pool:
                rollout._close()


def check_placeholders(
    rows: Sequence[Any], pad: int, grids: torch.Tensor, pictures: Sequence[int], merge: int
) -> None:
    """Compare picture tokens with picture features, conversation by conversation.

    Args:
        rows: token ids of each conversation.
        pad: the token that stands for one feature.
        grids: (pictures in all, 3), patches of each picture in time, height and width.
        pictures: how many of them belong to each conversation.
        merge: edge of the square of patches that makes one feature.

    Raises:
        PlaceholderMismatch: they differ; one such conversation makes TRL drop the pictures of all.
    """
    features = (torch.as_tensor(grids).prod(dim=-1) // merge**2).tolist()
    if len(features) != sum(pictures):
        raise PlaceholderMismatch(f"{sum(pictures)} pictures were shown and {len(features)} were encoded")
    at = 0
    for number, (row, count) in enumerate(zip(rows, pictures, strict=True)):
        tokens, wanted = int((torch.as_tensor(row) == pad).sum()), int(sum(features[at : at + count]))
        if tokens != wanted:
            raise PlaceholderMismatch(
                f"Conversation {number} holds {tokens} picture tokens, and its {count} pictures have "
                f"{wanted} features"
            )
        at += count
