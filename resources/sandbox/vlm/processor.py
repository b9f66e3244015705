"""Processor and loading of the tiny vision-language models.

The sandbox has no torchvision, which the video half of Qwen's processor needs; `AutoProcessor` then gives
back a mere tokenizer without a word. So the image half stands in a processor class of its own, loaded by
name, and whoever loads it gets a `ProcessorMixin` or an error.
"""

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor, ProcessorMixin
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5Config
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

from env_service.errors import GeoError

VISION_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")


class TinyVLProcessor(Qwen3VLProcessor):
    """`Qwen3VLProcessor` without its video processor."""

    def __init__(
        self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None, **_: Any
    ) -> None:
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        self.video_token_id = tokenizer.convert_tokens_to_ids(self.video_token)
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)
        self.vision_start_token, self.vision_end_token = VISION_TOKENS[:2]
        self.vision_start_token_id = tokenizer.convert_tokens_to_ids(self.vision_start_token)
        self.vision_end_token_id = tokenizer.convert_tokens_to_ids(self.vision_end_token)


def register() -> None:
    """Make `AutoProcessor` give the class above for this architecture."""
    AutoProcessor.register(Qwen3_5Config, TinyVLProcessor, exist_ok=True)


def load_processor(folder: Path) -> Any:
    """The processor of a tiny model.

    Raises:
        GeoError: the folder holds none that takes pictures.
    """
    register()
    processor = TinyVLProcessor.from_pretrained(folder, truncation_side="left", padding_side="left")
    if not isinstance(processor, ProcessorMixin) or processor.image_processor is None:
        raise GeoError(f"{folder} holds a processor that takes no pictures", "Build the base model again")
    return processor


def load_model(folder: Path) -> Any:
    """The weights of a tiny model, in float32."""
    return AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)


def view_px(processor: Any) -> int:
    """Edge in pixels of the square pictures that the model reads; larger ones are scaled down to it."""
    edge: float = float(processor.image_processor.size["longest_edge"]) ** 0.5
    return round(edge)


def scaled(picture: Image.Image, px: int) -> Image.Image:
    """A picture scaled down to `px` by the same filter everywhere, so that training and serving agree."""
    picture = picture.convert("RGB")
    return picture if picture.size == (px, px) else picture.resize((px, px), Image.Resampling.BICUBIC)


def vision_token_ids(processor: Any) -> list[int]:
    """Tokens that the model must never write: one of them sampled breaks the positions of the pictures."""
    return [int(processor.tokenizer.convert_tokens_to_ids(token)) for token in VISION_TOKENS]
