"""One call of every public operator with dropout, on few elements: what is traced, and what is differentiated numerically."""

import dataclasses
from collections.abc import Callable

import torch

from trireme import ops

EPS = 1e-5
H, HEADS = 16, 2
CU_SEQLENS = torch.tensor([0, 4, 5, 11])
TOKENS = 11
START, END = torch.tensor([1, 0, 3]), torch.tensor([2, 0, 5])
IDS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])
PLACES = torch.tensor([0, 1, 2, 3, 0, 0, 1, 2, 3, 4, 5])


@dataclasses.dataclass(frozen=True)
class Sample:
    call: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]  # of the tensors that it is called with, all of them with gradients

    def inputs(self, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        own = torch.Generator().manual_seed(8)
        return [torch.randn(shape, generator=own).to(dtype).requires_grad_() for shape in self.shapes]


_X, _ROW, _SQUARE = (TOKENS, H), (H,), (H, H)

SAMPLES = {
    "layer_norm": Sample(lambda x, gamma, beta: ops.layer_norm(x, gamma, beta, EPS), (_X, _ROW, _ROW)),
    "bias_gelu": Sample(lambda x, bias: ops.bias_gelu(x, bias), (_X, _ROW)),
    "bias_gelu_tanh": Sample(lambda x, bias: ops.bias_gelu(x, bias, True), (_X, _ROW)),
    "bias_dropout_residual_layer_norm": Sample(
        lambda x, bias, residual, gamma, beta: ops.bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, 0.3, EPS),
        (_X, _ROW, _X, _ROW, _ROW),
    ),
    "bias_dropout_residual": Sample(lambda x, bias, residual: ops.bias_dropout_residual(x, bias, residual, 0.3), (_X, _ROW, _X)),
    "dropout": Sample(lambda x: ops.dropout(x, 0.3), (_X,)),
    "embedding": Sample(
        lambda word, position, kind, gamma, beta: ops.embedding(IDS, word, PLACES, position, PLACES % 2, kind, gamma, beta, 0.3, EPS),
        ((12, H), (6, H), (2, H), _ROW, _ROW),
    ),
    "span_loss": Sample(lambda logits: ops.span_loss(logits, CU_SEQLENS, START, END), ((TOKENS, 2),)),
    "attention": Sample(lambda q, k, v: ops.attention(q, k, v, CU_SEQLENS, scale=0.3, dropout_p=0.3), ((TOKENS, HEADS, 8),) * 3),
    "self_attention_block": Sample(
        lambda x, *weights: ops.self_attention_block(x, weights, CU_SEQLENS, HEADS, 0.3, 0.3, EPS), (_X, *(_SQUARE, _ROW) * 4, _ROW, _ROW)
    ),
    "feed_forward_block": Sample(
        lambda x, *weights: ops.feed_forward_block(x, weights, False, 0.3, EPS), (_X, (24, H), (24,), (H, 24), _ROW, _ROW, _ROW)
    ),
}
