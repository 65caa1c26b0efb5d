"""The operators of ``torch.ops.trireme``, which this module loads. Sequences are packed: tokens lie end to end, ``[T, ...]``, and ``cu_seqlens``
(int64, one element more than there are sequences) says where each begins. Operators over rows take any leading dimensions; their parameters are
vectors of the last one. Tensors are float32 or bfloat16, parameters of either type whatever the rest is. All have gradients."""

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


def layer_norm(x: torch.Tensor, gamma: torch.Tensor | None, beta: torch.Tensor | None, eps: float) -> torch.Tensor:
    """``(x - mean) / sqrt(variance + eps) * gamma + beta`` of each row, computed in fp32."""
    return torch.ops.trireme.layer_norm(x, gamma, beta, eps)


def bias_gelu(x: torch.Tensor, bias: torch.Tensor | None, tanh: bool = False) -> torch.Tensor:
    """``gelu(x + bias)``, by erf or by tanh."""
    return torch.ops.trireme.bias_gelu(x, bias, tanh)


def bias_dropout_residual_layer_norm(
    x: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    p: float,
    eps: float,
) -> torch.Tensor:
    """``LayerNorm(dropout(x + bias) + residual)``. The residual is shaped like x."""
    return torch.ops.trireme.bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, p, eps)


def bias_dropout_residual(x: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None, p: float) -> torch.Tensor:
    """``dropout(x + bias) + residual``. The residual is shaped like x."""
    return torch.ops.trireme.bias_dropout_residual(x, bias, residual, p)


def dropout(x: torch.Tensor, p: float) -> torch.Tensor:
    """x where it is kept, scaled by ``1 / (1 - p)``, else 0. The mask is not stored. x itself where p is 0."""
    return torch.ops.trireme.dropout(x, p)


def embedding(
    ids: torch.Tensor,
    word: torch.Tensor,
    position_ids: torch.Tensor | None,
    position: torch.Tensor | None,
    type_ids: torch.Tensor | None,
    type: torch.Tensor | None,
    gamma: torch.Tensor | None,
    beta: torch.Tensor | None,
    p: float,
    eps: float,
    padding_idx: int = -1,
    position_padding_idx: int = -1,
    type_padding_idx: int = -1,
) -> torch.Tensor:
    """``dropout(LayerNorm(word[ids] + position[position_ids] + type[type_ids]))``, in the word table's type.

    Position and type ids are broadcast to the shape of ids. Rows of a padding_idx get no gradient; -1: there is none. Gradients are dense.
    """
    return torch.ops.trireme.embedding(
        ids, word, position_ids, position, type_ids, type, gamma, beta, p, eps, padding_idx, position_padding_idx, type_padding_idx
    )


def span_loss(logits: torch.Tensor, cu_seqlens: torch.Tensor, start_positions: torch.Tensor, end_positions: torch.Tensor) -> torch.Tensor:
    """The loss of extractive question answering, for logits [T, 2] of start and end: half the sum of both mean cross entropies, each a softmax
    over its sequence's own tokens. A position outside of its sequence does not count; NaN where none counts."""
    return torch.ops.trireme.span_loss(logits, cu_seqlens, start_positions, end_positions)


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
