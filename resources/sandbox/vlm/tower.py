"""The vision tower over a whole batch of equal pictures at once.

The library runs attention picture by picture and embeds patches by a 3-D convolution over two copies of the
picture, because its pictures may be films of any size. For stills of one size the same parameters give the
same features three times faster: patches as one matrix product with the two temporal halves added up, and
attention over a batch. A test holds both against each other.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers.models.qwen3_5.modeling_qwen3_5 import apply_rotary_pos_emb_vision
from transformers.vision_utils import (
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
)


def tower_features(tower: Any, pictures: NDArray[np.uint8]) -> torch.Tensor:
    """Features of the tower for pictures (n, px, px, 3) of uint8: (n, tokens, out_hidden_size), float32."""
    config = tower.config
    n, px = len(pictures), pictures.shape[1]
    patch, merge = int(config.patch_size), int(config.spatial_merge_size)
    side = px // patch
    tokens = side * side
    pixels = torch.from_numpy(np.ascontiguousarray(pictures)).float().div_(127.5).sub_(1.0)
    blocks = pixels.reshape(n, side // merge, merge, patch, side // merge, merge, patch, 3)
    # Patches in the processor's order: the four of one merged token stand together.
    patches = blocks.permute(0, 1, 4, 2, 5, 7, 3, 6).reshape(n * tokens, 3 * patch * patch)
    kernel = tower.patch_embed.proj.weight.sum(dim=2).reshape(config.hidden_size, -1)
    hidden = functional.linear(patches, kernel, tower.patch_embed.proj.bias).reshape(n, tokens, -1)
    grid = torch.tensor([[1, side, side]])
    indices, weights = get_vision_interpolation_indices_and_weights(
        grid,
        num_grid_per_side=tower.num_grid_per_side,
        mode=tower.interpolation_mode,
        align_corners=tower.interpolation_align_corners,
        spatial_merge_size=merge,
    )
    hidden = hidden + (tower.pos_embed(indices) * weights[:, :, None]).sum(1)
    cos, sin = tower.rotary_pos_emb(hidden, get_vision_position_ids(grid, merge))
    for block in tower.blocks:
        hidden = hidden + _attention(block.attn, block.norm1(hidden), cos, sin)
        hidden = hidden + block.mlp(block.norm2(hidden))
    merged: torch.Tensor = tower.merger(hidden.reshape(n * tokens, -1))
    return merged.reshape(n, tokens // (merge * merge), -1)


def _attention(layer: Any, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    n, tokens, width = hidden.shape
    query, key, value = layer.qkv(hidden).reshape(n, tokens, 3, layer.num_heads, -1).unbind(2)
    query, key = apply_rotary_pos_emb_vision(query, key, cos, sin)
    mixed = functional.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), scale=layer.scaling
    )
    result: torch.Tensor = layer.proj(mixed.transpose(1, 2).reshape(n, tokens, width))
    return result
