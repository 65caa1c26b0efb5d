"""The operators of ``torch.ops.trireme``, which this module loads. Sequences are packed: tokens lie end to end, ``[T, ...]``, and ``cu_seqlens``
(int64, one element more than there are sequences) says where each begins. All have gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trireme._library import ops as _operators

_operators()


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    scale: float,
    causal: bool = False,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """``softmax(scale q k^T + bias) v`` of each sequence. q: [T, heads, D]; k, v: [T, kv_heads, D]. There is no gradient for the bias."""
    return torch.ops.trireme.attention(q, k, v, cu_seqlens, bias, scale=scale, causal=causal, dropout_p=dropout_p)


def self_attention_block(
    x: torch.Tensor, weights: Sequence[torch.Tensor], cu_seqlens: torch.Tensor, heads: int, attention_p: float, hidden_p: float, eps: float
) -> torch.Tensor:
    """``LayerNorm(x + dropout(W_o attention(W_q x + b_q, W_k x + b_k, W_v x + b_v) + b_o))`` for x: [T, H].

    weights: W_q, b_q, W_k, b_k, W_v, b_v, W_o, b_o, gamma, beta.
    """
    return torch.ops.trireme.self_attention_block(x, weights, cu_seqlens, heads, attention_p, hidden_p, eps)


def feed_forward_block(x: torch.Tensor, weights: Sequence[torch.Tensor], tanh: bool, hidden_p: float, eps: float) -> torch.Tensor:
    """``LayerNorm(x + dropout(W_2 gelu(W_1 x + b_1) + b_2))`` for x: [T, H]. weights: W_1, b_1, W_2, b_2, gamma, beta."""
    return torch.ops.trireme.feed_forward_block(x, weights, tanh, hidden_p, eps)


def measure_fma_peak(seconds: float) -> float:
    """GFLOP/s of nothing but fused multiply-adds on torch's threads: what a benchmark is compared with."""
    return torch.ops.trireme.measure_fma_peak(seconds)
