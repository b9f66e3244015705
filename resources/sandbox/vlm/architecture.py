"""An untrained tiny vision-language model of the Qwen3.5 architecture, with a tokenizer of its own.

Everything is made offline. The tokenizer is a byte-level BPE trained on conversations, so any text can be
written; phrases that every conversation repeats (tool definitions, the opening words) and whole numbers are
single tokens, which keeps prompts short enough for a CPU.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers, trainers
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5Config
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForConditionalGeneration
from transformers.models.qwen3_5.tokenization_qwen3_5 import PRETOKENIZE_REGEX, Qwen3_5Tokenizer
from trl.chat_template_utils import qwen3_5_nothink_chat_template

from resources.sandbox.vlm.processor import VISION_TOKENS, TinyVLProcessor
from resources.sandbox.vlm.specs import Shape

SPECIAL_TOKENS = ("<|im_start|>", *VISION_TOKENS)
MARKUP_TOKENS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
BPE_VOCABULARY = 700
PATCH_PX, MERGE = 16, 2
POSITIONS = 4096
INITIAL_SPREAD = 0.06
"""Standard deviation of new weights: the library's 0.02 is for models thirty times as wide."""


def build(folder: Path, shape: Shape, texts: Sequence[str], phrases: Sequence[str], seed: int = 0) -> None:
    """Write an untrained model and its processor.

    Args:
        folder: where to.
        shape: its sizes.
        texts: rendered conversations on which the tokenizer is trained.
        phrases: texts that become one token each.
        seed: of the random weights.
    """
    tokenizer = make_tokenizer(texts, phrases)
    edge = shape.view_px * shape.view_px
    images = Qwen2VLImageProcessorPil(
        patch_size=PATCH_PX,
        merge_size=MERGE,
        temporal_patch_size=2,
        size={"shortest_edge": edge, "longest_edge": edge},
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
    )
    processor = TinyVLProcessor(images, tokenizer, chat_template=qwen3_5_nothink_chat_template)
    torch.manual_seed(seed)
    model = Qwen3_5ForConditionalGeneration(_configuration(shape, tokenizer))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def make_tokenizer(texts: Sequence[str], phrases: Sequence[str]) -> Any:
    """Byte-level BPE with Qwen's own splitting, its special tokens, and `phrases` as single tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=BPE_VOCABULARY,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    trained: Mapping[str, Any] = json.loads(bpe.to_str())["model"]
    tokenizer = Qwen3_5Tokenizer(
        vocab=trained["vocab"],
        merges=[tuple(merge) for merge in trained["merges"]],
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL_TOKENS)})
    ordinary = [*MARKUP_TOKENS, *dict.fromkeys(phrases)]
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in ordinary])
    return tokenizer


def _configuration(shape: Shape, tokenizer: Any) -> Qwen3_5Config:
    head = shape.hidden // shape.heads
    third = head // 12
    number = tokenizer.convert_tokens_to_ids
    return Qwen3_5Config(
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
        tie_word_embeddings=True,
        text_config={
            "vocab_size": -(-len(tokenizer) // 64) * 64,
            "hidden_size": shape.hidden,
            "intermediate_size": 3 * shape.hidden,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads // 2,
            "head_dim": head,
            "max_position_embeddings": POSITIONS,
            "tie_word_embeddings": True,
            "layer_types": [
                "linear_attention" if layer % 2 == 0 else "full_attention" for layer in range(shape.layers)
            ],
            "linear_key_head_dim": head,
            "linear_value_head_dim": head,
            "linear_num_key_heads": shape.heads // 2,
            "linear_num_value_heads": shape.heads,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
                "mrope_interleaved": True,
                "mrope_section": [head // 4 - 2 * third, third, third],
            },
            "eos_token_id": tokenizer.eos_token_id,
            "initializer_range": INITIAL_SPREAD,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
        },
        vision_config={
            "depth": shape.vision_depth,
            "hidden_size": shape.vision_hidden,
            "intermediate_size": 2 * shape.vision_hidden,
            "num_heads": 4,
            "patch_size": PATCH_PX,
            "spatial_merge_size": MERGE,
            "temporal_patch_size": 2,
            "out_hidden_size": shape.hidden,
            "num_position_embeddings": 64,
            "initializer_range": INITIAL_SPREAD,
        },
    )
