"""Dropout's masks: how much they keep, and that every pass sees the same one."""

import math

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from trireme import ops

SHAPE = (128, 384)  # enough for two threads
CU_SEQLENS = torch.tensor([0, 30, 128])


def dense_weights(*rows_of: int) -> list[torch.Tensor]:
    """Matrices and biases of dense layers, in turn. Torch's own generator is not touched."""
    own = torch.Generator().manual_seed(3)
    sizes = zip(rows_of[1:], rows_of)
    return [each for out, inner in sizes for each in (torch.randn(out, inner, generator=own) / math.sqrt(inner), torch.randn(out, generator=own))]


def attention_weights() -> list[torch.Tensor]:
    square = dense_weights(384, 384)
    return square * 4 + [torch.ones(384), torch.zeros(384)]


def call_embedding(x: torch.Tensor) -> torch.Tensor:
    return ops.embedding(torch.arange(128), x, None, None, None, None, None, None, 0.25, 1e-5)


# Each takes x: [128, 384] and drops a quarter of something.
DROPPING = {
    "dropout": lambda x: ops.dropout(x, 0.25),
    "bias_dropout_residual": lambda x: ops.bias_dropout_residual(x, None, x.detach(), 0.25),
    "bias_dropout_residual_layer_norm": lambda x: ops.bias_dropout_residual_layer_norm(x, None, x, None, None, 0.25, 1e-5),
    "embedding": call_embedding,
    "attention": lambda x: ops.attention(*[x.view(128, 6, 64)] * 3, CU_SEQLENS, scale=0.125, dropout_p=0.25),
    "self_attention_block": lambda x: ops.self_attention_block(x, attention_weights(), CU_SEQLENS, 6, 0.25, 0.25, 1e-5),
    "feed_forward_block": lambda x: ops.feed_forward_block(x, dense_weights(384, 48, 384) + [torch.ones(384), torch.zeros(384)], False, 0.25, 1e-5),
}


def value_and_gradient(function, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach().requires_grad_()
    y = function(x)
    y.backward(torch.linspace(-1, 1, y.numel()).view(y.shape))
    return y.detach(), x.grad


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_keeps_what_it_should(p):
    torch.manual_seed(1)
    y = ops.dropout(torch.ones(500, 400), p)
    kept = y.count_nonzero().item()
    # Five standard deviations of a binomial distribution: wrong once in two million seeds, and the seed is fixed.
    assert abs(kept - (1 - p) * 200_000) < 5 * math.sqrt(200_000 * p * (1 - p))
    # p is a multiple of 2^-16, so the scale is off by at most 2^-16 / (1 - p) of itself.
    assert y.max().item() == pytest.approx(1 / (1 - p), rel=2**-16 / (1 - p))
    assert set(y.unique().tolist()) == {0.0, y.max().item()}


def test_nothing_and_everything():
    x = torch.randn(8, 9)
    assert ops.dropout(x, 0.0) is x or torch.equal(ops.dropout(x, 0.0), x)
    assert not ops.dropout(x, 1.0).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_passes_have_one_mask(dtype):
    x = torch.ones(SHAPE, dtype=dtype, requires_grad=True)
    for function in (lambda x: ops.dropout(x, 0.25), lambda x: ops.bias_dropout_residual(x, None, None, 0.25)):
        y = function(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert torch.equal(gradient, y) and 0 < y.count_nonzero() < y.numel()


@pytest.mark.parametrize("name", DROPPING)
def test_calls_differ_and_seeds_repeat(name):
    x = torch.randn(SHAPE)
    results = []
    for seed in (1, None, 1):
        if seed is not None:
            torch.manual_seed(seed)
        results.append(value_and_gradient(DROPPING[name], x))
    first, second, again = results
    assert not torch.equal(first[0], second[0]), "two calls dropped the same"
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("name", DROPPING)
def test_checkpoints_compute_the_same_again(name, use_reentrant):
    x = torch.randn(SHAPE)
    torch.manual_seed(9)
    plain = value_and_gradient(DROPPING[name], x)
    torch.manual_seed(9)
    again = value_and_gradient(lambda x: checkpoint(DROPPING[name], x, use_reentrant=use_reentrant), x)
    assert torch.equal(plain[0], again[0]) and torch.equal(plain[1], again[1])


@pytest.mark.parametrize("name", DROPPING)
def test_threads_do_not_matter(name):
    """One generator, one order of sums; matrix products are torch's and may differ in the last bits."""
    x, before = torch.randn(SHAPE), torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(2)
            results.append(value_and_gradient(DROPPING[name], x))
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*results):
        if name.endswith("block"):
            torch.testing.assert_close(one, two)
        else:
            assert torch.equal(one, two)


def test_nothing_is_drawn_where_nothing_is_dropped():
    """Evaluation does not move the generator."""
    x = torch.randn(4, 8)
    before = torch.get_rng_state()
    ops.dropout(x, 0.0)
    ops.bias_dropout_residual(x, None, None, 0.0)
    ops.bias_dropout_residual_layer_norm(x, None, None, None, None, 0.0, 1e-5)
    ops.embedding(torch.arange(4), x, None, None, None, None, None, None, 0.0, 1e-5)
    assert torch.equal(torch.get_rng_state(), before)
    ops.dropout(x, 0.5)
    assert not torch.equal(torch.get_rng_state(), before)
