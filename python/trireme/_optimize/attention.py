"""Attention for any model: the function "trireme" among transformers' attention functions.

transformers builds the mask, with the function it has for torch's scaled_dot_product_attention, which is registered under our name too: an
attention without a mask function gets no mask at all from 4.53 on, and would attend to padding. What the mask says is read back from it:

    nothing, padding, either with the causal order   tokens are packed, padding is not computed
    anything else that can be added to the scores    the padded batch, with the mask as the operator's bias
    all that is left                                 transformers' own function for scaled_dot_product_attention

Packed, what attention gives at padded places is zero, as with transformers' flash_attention_2; so only models that transformers says can have
that, and that have no cross-attention, are packed, under the name "trireme". Others get the name "trireme_padded", which computes every place.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from trireme import ops
from trireme._optimize import precision, transforms
from trireme._optimize.packing import Packing, packing_of
from trireme._optimize.report import say_once

PACKED = "trireme"
PADDED = "trireme_padded"

MAX_HEAD_SIZE = 256
# Masks add 0 or the lowest number there is; older ones -10000. exp of either is 0 in fp32.
BLOCKED = -1e4
# What models hand to every attention function; transformers' function for sdpa ignores it too.
IGNORED = {"sliding_window", "position_ids", "cache_position", "use_cache", "output_hidden_states", "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q"}
IGNORED |= {"max_length_k", "num_items_in_batch", "deterministic", "use_top_left_mask", "target_dtype", "attn_implementation", "return_dict"}
IGNORED |= {"output_router_logits", "seq_idx"}


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A mask in a few words: which keys may be seen, [batch or 1, S], and whether only earlier ones."""

    present: torch.Tensor | None
    causal: bool


@functools.cache
def register() -> bool:
    """Makes the names known to transformers. False where it has no registry (before 4.48)."""
    try:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    except ImportError:
        return False
    for name, packs in ((PACKED, True), (PADDED, False)):
        _add(ALL_ATTENTION_FUNCTIONS, name, functools.partial(attention, packs))
    try:
        from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    except ImportError:
        return True  # before 4.53 models make their masks themselves, one for every name but a few
    for name in (PACKED, PADDED):
        _add(ALL_MASK_ATTENTION_FUNCTIONS, name, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    return True


def _add(registry: Any, name: str, function: Any) -> None:
    if hasattr(type(registry), "register"):
        type(registry).register(name, function)
    else:
        registry[name] = function  # 4.48 and 4.49: a dict


# ---- The function ----


def attention(
    packs: bool,
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """query: [B, heads, S, D]; key, value: [B, kv_heads, S', D]. Returns [B, S, heads, D], and probabilities only where they were asked for."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    attention_mask = _cut(attention_mask, key.shape[2])
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    causal = attention_mask is None and query.shape[2] > 1 and bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    others = {name: x for name, x in others.items() if x is not None and x is not False and name not in IGNORED}
    if others.keys() and others.keys() <= {"head_mask", "output_attentions", "softcap"}:
        return in_steps(query, key, value, attention_mask, scale, causal, dropout, **others)
    if others:
        say_once(f"{type(module).__name__} hands {', '.join(sorted(others))} to its attention: torch's computes it")
    if others or not _fits(query, key, value, attention_mask):
        theirs = ALL_ATTENTION_FUNCTIONS["sdpa"]
        return theirs(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=causal, **others)
    return _ours(packs, query, key, value, attention_mask, scale, causal, dropout), None


def _cut(mask: torch.Tensor | None, length: int) -> torch.Tensor | None:
    """Models that make their masks themselves may give them one key more than there are; transformers' function for sdpa cuts them too."""
    if mask is None or mask.dim() != 4 or mask.shape[3] <= length:
        return mask
    if mask.requires_grad or torch.compiler.is_compiling():
        return mask[..., :length]
    return _kept(mask, f"_trireme_first_{length}", lambda: mask[..., :length].clone())  # a view would keep the mask alive


def _fits(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> bool:
    batch, heads, length, size = query.shape
    if transforms.are_active() or not precision.autocast_fits() or query.device.type != "cpu" or batch * length == 0 or size > MAX_HEAD_SIZE:
        return False
    if key.shape != value.shape or key.shape != (batch, key.shape[1], length, size) or heads % key.shape[1] != 0:
        return False
    if not (query.dtype == key.dtype == value.dtype and query.dtype in (torch.float32, torch.bfloat16)):
        return False
    if mask is None:
        return True
    wanted = ((1, batch), (1, heads), (1, length), (length,))
    return mask.dim() == 4 and all(n in fits for n, fits in zip(mask.shape, wanted, strict=True)) and not mask.requires_grad


def _ours(
    packs: bool,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
    dropout: float,
) -> torch.Tensor:
    batch, _, length, _ = query.shape
    packing, bias = packing_of((batch, length), None), None
    if mask is not None:
        pattern = pattern_of(mask) if packs else None
        tokens = None if pattern is None else _packing(pattern, batch, length)
        if tokens is None:
            bias = _as_bias(mask)
        else:
            packing, causal = tokens, pattern.causal
    q, k, v = (packing.pack(x.transpose(1, 2)) for x in (query, key, value))
    return packing.unpack(ops.attention(q, k, v, packing.cu_seqlens, bias, scale=scale, causal=causal, dropout_p=dropout))


def _packing(pattern: Pattern, batch: int, length: int) -> Packing | None:
    """None where nothing is present."""
    present = pattern.present
    return packing_of((batch, length), None if present is None else present.expand(batch, length))


def _as_bias(mask: torch.Tensor) -> torch.Tensor:
    """As torch has it, a place that sees nothing gets zeros from a mask of bools, and from one of the lowest numbers there are the mean of all."""
    if mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=torch.float32).masked_fill(~mask, -torch.inf)
    return mask.to(torch.float32).contiguous()


def in_steps(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    causal: bool,
    dropout: float,
    head_mask: torch.Tensor | None = None,
    output_attentions: bool = False,
    softcap: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """With the matrix of probabilities in memory: for callers that want to see or change it."""
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (key, value))
    scores = query @ key.transpose(2, 3) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril(), torch.finfo(scores.dtype).min)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min) if mask.dtype == torch.bool else scores + mask
    weights = nn.functional.softmax(scores, -1, dtype=torch.float32).to(value.dtype)
    weights = nn.functional.dropout(weights, dropout)
    if head_mask is not None:  # by head, or of any shape that fits the probabilities
        weights = weights * (head_mask.view(1, -1, 1, 1) if head_mask.dim() == 1 else head_mask)
    return (weights @ value).transpose(1, 2).contiguous(), weights


# ---- What a mask says ----


def pattern_of(mask: torch.Tensor) -> Pattern | None:
    """Of a mask [B, 1, S, S] or [B, 1, 1, S], or None where it is neither padding nor causal order nor both."""
    return _kept(mask, "_trireme_pattern", lambda: _read_pattern(mask))


def _kept(mask: torch.Tensor, name: str, make: Callable[[], Any]) -> Any:
    """Every layer is handed the same mask, so what is made of it is kept on it, until somebody writes into it."""
    if mask.is_inference():
        return make()
    version, kept = getattr(mask, name, (-1, None))
    if version != mask._version:
        kept = make()
        setattr(mask, name, (mask._version, kept))
    return kept


def _read_pattern(mask: torch.Tensor) -> Pattern | None:
    if mask.shape[1] != 1:
        return None
    allowed = mask[:, 0]
    if mask.dtype != torch.bool:
        if not ((allowed == 0) | (allowed <= BLOCKED)).all():
            return None
        allowed = allowed == 0
    present = allowed.any(1)
    keys, queries = present[:, None, :], present[:, :, None]
    if allowed.shape[1] == 1:
        return _pattern(present, causal=False)
    # A place that nobody looks at is padding; what its own row says does not matter.
    if ((allowed == keys) | ~queries).all():
        return _pattern(present, causal=False)
    earlier = torch.ones(allowed.shape[1:], dtype=torch.bool).tril()
    if ((allowed == (keys & earlier)) | ~queries).all():
        return _pattern(present, causal=True)
    return None


def _pattern(present: torch.Tensor, causal: bool) -> Pattern:
    return Pattern(None if present.all() else present, causal)
