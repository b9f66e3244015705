"""From a run's spec to what TRL, PEFT and the loaders are told; where a card is there, and where none is."""

import json
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig
from transformers import AutoModelForImageTextToText, AutoProcessor, ProcessorMixin
from trl import GRPOConfig

from env_service.errors import GeoError
from geo_assets.config.runs import RunSpec
from resources.sandbox.vlm.processor import TinyVLProcessor, load_model, load_processor, vision_token_ids

NEVER = -100.0
"""Bias that keeps vLLM from writing a token."""


def load_base(base: str, revision: str | None) -> tuple[Any, Any]:
    """Processor and model to start from.

    Args:
        base: a folder, or a Hub repository.
        revision: the repository's commit.

    Raises:
        GeoError: the processor takes no pictures.
    """
    if is_tiny(Path(base)):
        return load_processor(Path(base)), load_model(Path(base))
    processor = AutoProcessor.from_pretrained(
        base, revision=revision, truncation_side="left", padding_side="left"
    )
    if not isinstance(processor, ProcessorMixin):
        raise GeoError(f"The processor of {base} takes no pictures", "Install torchvision beside torch")
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    return processor, AutoModelForImageTextToText.from_pretrained(base, revision=revision, dtype=dtype)


def is_tiny(folder: Path) -> bool:
    """Whether a folder holds one of the sandbox's models."""
    try:
        body = json.loads((folder / "processor_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(body.get("processor_class") == TinyVLProcessor.__name__)


def lora_config(run: RunSpec) -> LoraConfig:
    """The adapter that is trained."""
    targets = run.lora.targets
    return LoraConfig(
        r=run.lora.r,
        lora_alpha=run.lora.alpha,
        lora_dropout=run.lora.dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )


def trainer_config(run: RunSpec, folder: Path, processor: Any, world_size: int) -> GRPOConfig:
    """TRL's configuration of a run.

    Args:
        run: the spec.
        folder: where checkpoints go.
        processor: of the base model.
        world_size: cards, or 1.

    Raises:
        ValueError: a step's episodes do not divide over that many cards.
    """
    card = torch.cuda.is_available()
    vision = vision_token_ids(processor)
    with_vllm = run.vllm.use and card
    if with_vllm:
        generation: dict[str, Any] = {
            "max_tokens": run.max_turn_length,
            "logit_bias": dict.fromkeys(vision, NEVER),
        }
        vllm: dict[str, Any] = {
            "use_vllm": True,
            "vllm_mode": "colocate",
            "vllm_gpu_memory_utilization": run.vllm.memory,
            "vllm_max_model_length": run.vllm.max_model_length,
            "vllm_importance_sampling_correction": run.importance_sampling != "off",
            "vllm_importance_sampling_mode": "token_truncate",
        }
    else:
        # A sampled vision token breaks the positions of the pictures; TRL suppresses only one of the four.
        generation = {"max_new_tokens": run.max_turn_length, "suppress_tokens": vision}
        vllm = {"use_vllm": False}
    return GRPOConfig(
        output_dir=str(folder),
        seed=run.seed,
        max_steps=run.steps,
        num_generations=run.generations,
        generation_batch_size=run.generation_batch,
        per_device_train_batch_size=run.per_device_batch,
        gradient_accumulation_steps=run.gradient_accumulation(world_size),
        num_iterations=run.num_iterations,
        scale_rewards=run.scale_rewards,
        beta=run.beta,
        loss_type=run.loss,
        learning_rate=run.learning_rate,
        lr_scheduler_type=run.lr_schedule,
        temperature=run.temperature,
        top_p=1.0,
        top_k=0,
        max_completion_length=run.max_completion_length,
        max_tool_calling_iterations=run.max_turns,
        mask_truncated_completions=run.mask_truncated_completions,
        generation_kwargs=generation,
        chat_template_kwargs={"enable_thinking": False},
        save_strategy="steps" if run.save_every else "no",
        save_steps=run.save_every or run.steps,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        log_multimodal=False,
        use_cpu=not card,
        bf16=card,
        gradient_checkpointing=card,
        dataloader_pin_memory=card,
        ddp_find_unused_parameters=False if world_size > 1 else None,
        **vllm,
    )
