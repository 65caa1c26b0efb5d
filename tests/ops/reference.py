"""The operators in plain torch, in double, and how close the fast ones must come.

Errors are measured by norm: |actual - expected| <= n u |expected|. In float32 (u = 2^-24) a chain of n roundings gives at most that; a sum of N
terms is a chain of N. In bfloat16 (u = 2^-8) arithmetic is float32, and only what is stored is rounded: the result, and at most three stored
values on the way to it, hence n = 4. Cancellation makes a bound by norm fail where the result is much smaller than its terms; random data
does not do that, except in sums over N terms of random sign, whose norm is sqrt(N) times smaller than that of their terms: so n has a margin of 4.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch.nn import functional

from trireme import ops

EPS = 1e-5


def bound(dtype: torch.dtype, terms: int) -> float:
    return 4 * 2**-8 if dtype == torch.bfloat16 else 4 * (terms + 16) * 2**-24


def assert_close(actual: torch.Tensor, expected: torch.Tensor, limit: float, what: str = "") -> None:
    assert actual.shape == expected.shape, f"{what}: {tuple(actual.shape)} instead of {tuple(expected.shape)}"
    error, norm = (actual.double() - expected.double()).norm().item(), expected.double().norm().item()
    # 2^-40: a result that is 0 in theory, as the gradient of a LayerNorm is for rows of one element.
    assert error <= limit * norm + 2**-40, f"{what}: off by {error:.1e}, {limit:.1e} of {norm:.1e} is allowed"


def drawn_seeds(count: int, seed: int) -> torch.Tensor:
    """Those that an operator draws if torch is seeded so before it is called."""
    torch.manual_seed(seed)
    return torch.randint(2**63 - 1, (count,))


def mask(shape: tuple[int, ...], p: float, seed: int) -> torch.Tensor:
    """What dropout multiplies with, in double, if torch is seeded so before it is called."""
    ones = torch.ones(shape)
    return (torch.ops.trireme.dropout_forward(ones, p, drawn_seeds(1, seed)) if p else ones).double()


def attention(q, k, v, cu_seqlens, scale):
    """Per sequence and head; q, k, v: [T, heads, D]."""
    parts = []
    for begin, end in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist()):
        a, b, c = (x[begin:end].transpose(0, 1) for x in (q, k, v))
        parts.append((torch.softmax(a @ b.mT * scale, -1) @ c).transpose(0, 1))
    return torch.cat(parts) if parts else torch.zeros_like(q)


def layer_norm(x, gamma, beta):
    return functional.layer_norm(x, x.shape[-1:], gamma, beta, EPS)


def span_loss(logits, cu_seqlens, start, end):
    total = 0
    for column, positions in enumerate((start, end)):
        losses = []
        for b, (begin, stop) in enumerate(zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist())):
            if 0 <= positions[b] < stop - begin:
                losses.append(functional.cross_entropy(logits[begin:stop, column], positions[b]))
        total = total + torch.stack(losses).mean() / 2
    return total


@dataclasses.dataclass(frozen=True)
class Case:
    """An operator, called with p and the tensors by name, and the same in plain torch, with dropout's mask instead of p. `parameters` may be
    of another type than the rest."""

    shapes: Callable[[tuple[int, ...]], dict[str, tuple[int, ...]]]
    call: Callable[..., torch.Tensor]
    reference: Callable[..., torch.Tensor]
    parameters: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    has_dropout: bool = False


def add(x, *others):
    for other in others:
        x = x if other is None else x + other
    return x


def _row_shapes(*names: str) -> Callable[[tuple[int, ...]], dict[str, tuple[int, ...]]]:
    whole = ("x", "residual")
    return lambda shape: {name: shape if name in whole else shape[-1:] for name in names}


def _case(names: str, optional: str, call, reference, has_dropout=False) -> Case:
    listed = names.split()
    return Case(_row_shapes(*listed), call, reference, frozenset(listed) - {"x", "residual"}, frozenset(optional.split()), has_dropout)



# Operators over rows.
ROWS = {
    "layer_norm": _case(
        "x gamma beta",
        "gamma beta",
        lambda p, x, gamma, beta: ops.layer_norm(x, gamma, beta, EPS),
        lambda keep, x, gamma, beta: layer_norm(x, gamma, beta),
    ),
    "bias_gelu": _case(
        "x bias", "bias", lambda p, x, bias: ops.bias_gelu(x, bias, False), lambda keep, x, bias: functional.gelu(add(x, bias))
    ),
    "bias_gelu_tanh": _case(
        "x bias",
        "bias",
        lambda p, x, bias: ops.bias_gelu(x, bias, True),
        lambda keep, x, bias: functional.gelu(add(x, bias), approximate="tanh"),
    ),
    "bias_dropout_residual_layer_norm": _case(
        "x bias residual gamma beta",
        "bias residual gamma beta",
        lambda p, x, bias, residual, gamma, beta: ops.bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, p, EPS),
        lambda keep, x, bias, residual, gamma, beta: layer_norm(add(add(x, bias) * keep, residual), gamma, beta),
        True,
    ),
    "bias_dropout_residual": _case(
        "x bias residual",
        "bias residual",
        lambda p, x, bias, residual: ops.bias_dropout_residual(x, bias, residual, p),
        lambda keep, x, bias, residual: add(add(x, bias) * keep, residual),
        True,
    ),
    "dropout": _case("x", "", lambda p, x: ops.dropout(x, p), lambda keep, x: x * keep, True),
}
