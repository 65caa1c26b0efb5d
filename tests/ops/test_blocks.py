"""Attention and the halves of an encoder layer against plain torch in double."""

import math

import pytest
import torch
from torch.nn import functional

from trireme import ops

from .reference import EPS, assert_close, attention, bound, layer_norm

FP32, BF16 = torch.float32, torch.bfloat16
HEADS, H, INNER = 3, 24, 40
CU_SEQLENS = torch.tensor([0, 7, 8, 21])
TOKENS = 21


def attention_inputs(dtype=FP32) -> list[torch.Tensor]:
    torch.manual_seed(1)
    return [torch.randn(TOKENS, HEADS, 8).to(dtype).requires_grad_() for _ in range(3)]


def block_inputs(sizes, dtype=FP32, vector_dtype=FP32) -> list[torch.Tensor]:
    """x, then matrix and bias of each dense layer, then gamma and beta."""
    torch.manual_seed(2)
    made = [torch.randn(TOKENS, H)]
    for out, inner in sizes:
        made += [torch.randn(out, inner) / math.sqrt(inner), torch.randn(out)]
    made += [torch.randn(H), torch.randn(H)]
    return [x.to(vector_dtype if x.dim() == 1 else dtype).requires_grad_() for x in made]


SELF_ATTENTION, FEED_FORWARD = [(H, H)] * 4, [(INNER, H), (H, INNER)]


def self_attention_block(x, wq, bq, wk, bk, wv, bv, wo, bo, gamma, beta):
    q, k, v = (functional.linear(x, w, b).view(-1, HEADS, H // HEADS) for w, b in ((wq, bq), (wk, bk), (wv, bv)))
    context = attention(q, k, v, CU_SEQLENS, (H // HEADS) ** -0.5).reshape(-1, H)
    return layer_norm(x + functional.linear(context, wo, bo), gamma, beta)


def feed_forward_block(x, w1, b1, w2, b2, gamma, beta):
    return layer_norm(x + functional.linear(functional.gelu(functional.linear(x, w1, b1)), w2, b2), gamma, beta)


# The operator, the same in plain torch, and its inputs for given types of matrices and vectors.
CASES = {
    "attention": (
        lambda q, k, v: ops.attention(q, k, v, CU_SEQLENS, scale=0.3),
        lambda q, k, v: attention(q, k, v, CU_SEQLENS, 0.3),
        lambda dtype, vector_dtype: attention_inputs(dtype),
    ),
    "self_attention_block": (
        lambda x, *weights: ops.self_attention_block(x, weights, CU_SEQLENS, HEADS, 0.0, 0.0, EPS),
        self_attention_block,
        lambda *dtypes: block_inputs(SELF_ATTENTION, *dtypes),
    ),
    "feed_forward_block": (
        lambda x, *weights: ops.feed_forward_block(x, weights, False, 0.0, EPS),
        feed_forward_block,
        lambda *dtypes: block_inputs(FEED_FORWARD, *dtypes),
    ),
}


def compare(name, inputs, limit, expected_dtype=None):
    call, reference, _ = CASES[name]
    exact = [x.detach().double().requires_grad_(x.requires_grad) for x in inputs]
    y, expected = call(*inputs), reference(*exact)
    assert y.dtype == (expected_dtype or inputs[0].dtype)
    assert_close(y, expected, limit, "y")
    dy = torch.randn(y.shape).to(y.dtype)
    wanted = [i for i, x in enumerate(inputs) if x.requires_grad]
    gradients = torch.autograd.grad(y, [inputs[i] for i in wanted], dy)
    expected_gradients = torch.autograd.grad(expected, [exact[i] for i in wanted], dy.double())
    largest = max(gradient.norm().item() for gradient in expected_gradients)
    for i, gradient, expected_gradient in zip(wanted, gradients, expected_gradients):
        assert gradient.dtype == inputs[i].dtype
        # Softmax does not see the bias of the keys: its gradient is 0 but for rounding.
        if expected_gradient.norm() < 1e-9 * largest:
            assert gradient.norm() < limit * largest, f"the gradient of input {i}"
        else:
            assert_close(gradient, expected_gradient, limit, f"the gradient of input {i}")


@pytest.mark.parametrize("vector_dtype", [FP32, BF16])
@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("name", CASES)
def test_is_torchs(name, dtype, vector_dtype):
    # Through two products with up to 40 terms each, and back. In bfloat16 both products' results are stored, and what they are made from.
    limit = bound(FP32, 4 * INNER + TOKENS) if dtype == vector_dtype == FP32 else 2 * bound(BF16, 0)
    compare(name, CASES[name][2](dtype, vector_dtype), limit)


@pytest.mark.parametrize("name", CASES)
def test_only_what_is_wanted(name):
    count = len(CASES[name][2](FP32, FP32))
    for wanted in range(count):
        inputs = [x.requires_grad_(i == wanted) for i, x in enumerate(CASES[name][2](FP32, FP32))]
        if name == "self_attention_block" and wanted == 4:
            continue  # the keys' bias, see above: nothing to compare with
        compare(name, inputs, bound(FP32, 4 * INNER + TOKENS))


@pytest.mark.parametrize("dtype", [FP32, BF16])
@pytest.mark.parametrize("name", CASES)
def test_no_tokens(name, dtype, monkeypatch):
    """Nothing comes of nothing, and parameters get gradients of 0."""
    monkeypatch.setitem(globals(), "CU_SEQLENS", CU_SEQLENS[:1])
    tokens, *weights = CASES[name][2](dtype, FP32)
    inputs = [x[:0].detach().requires_grad_() if name == "attention" else x for x in weights]
    inputs.insert(0, tokens[:0].detach().requires_grad_())
    y = CASES[name][0](*inputs)
    assert y.shape == inputs[0].shape
    y.sum().backward()
    assert all(x.grad.eq(0).all() and x.grad.shape == x.shape for x in inputs)


def test_queries_that_see_nothing():
    """A bias of minus infinity hides keys; where it hides all of them the result and its gradients are 0."""
    q, k, v = attention_inputs()
    bias = torch.zeros(1, 1, 13, 13)
    bias[..., 1, :] = bias[..., 4, 3:] = -torch.inf
    y = ops.attention(q, k, v, CU_SEQLENS, bias, scale=0.3)
    hidden = torch.tensor([1, 9])  # the second of each sequence but that of one token
    assert y[hidden].eq(0).all() and y.isfinite().all()
    y.sum().backward()
    assert q.grad[hidden].eq(0).all() and all(x.grad.isfinite().all() for x in (q, k, v))


# ---- torch.autocast ----


@pytest.mark.parametrize("name", CASES)
def test_autocast_runs_them_in_bfloat16(name):
    """Gradients reach float32 parameters as float32."""
    inputs = CASES[name][2](FP32, FP32)
    with torch.autocast("cpu", torch.bfloat16):
        compare(name, inputs, 3 * bound(BF16, 0), BF16)  # also inside: the backward pass


@pytest.mark.parametrize("name", CASES)
def test_autocast_casts_what_linear_casts(name):
    """x and the matrices; biases and norms stay: the bits are those of a call with x and the matrices cast by hand."""
    inputs = CASES[name][2](FP32, FP32)
    by_hand = [x.detach().to(FP32 if x.dim() == 1 else BF16).requires_grad_() for x in inputs]
    with torch.autocast("cpu", torch.bfloat16):
        y = CASES[name][0](*inputs)
    expected = CASES[name][0](*by_hand)
    assert torch.equal(y, expected)
    y.sum().backward()
    expected.sum().backward()
    for x, cast in zip(inputs, by_hand):
        assert x.grad.dtype == FP32 and torch.equal(x.grad, cast.grad.float())


@pytest.mark.parametrize("name", CASES)
def test_a_backward_pass_under_autocast_of_a_forward_pass_without(name):
    """The products inside must not change type under the kernels' hands."""
    results = []
    for enabled in (False, True):
        inputs = CASES[name][2](FP32, FP32)
        y = CASES[name][0](*inputs)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            results.append(torch.autograd.grad(y, inputs, torch.ones_like(y)))
    for without, under in zip(*results):
        assert torch.equal(without, under)


def test_autocast_leaves_the_others_their_types():
    x, gamma = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    logits = torch.randn(4, 2)
    bounds, positions = torch.tensor([0, 4]), torch.tensor([1])
    plain = ops.layer_norm(x, gamma, None, EPS), ops.span_loss(logits, bounds, positions, positions)
    with torch.autocast("cpu", torch.bfloat16):
        norm = ops.layer_norm(x, gamma, None, EPS)
        loss = ops.span_loss(logits, bounds, positions, positions)
        low = ops.layer_norm(x.bfloat16(), gamma, None, EPS)
        low_loss = ops.span_loss(logits.bfloat16(), bounds, positions, positions)
    assert torch.equal(norm, plain[0]) and torch.equal(loss, plain[1])
    assert low.dtype == BF16 and low_loss.dtype == FP32
    low.sum().backward()
    assert gamma.grad.dtype == FP32 and x.grad.dtype == FP32


def test_autocast_to_float16_is_refused():
    inputs = CASES["feed_forward_block"][2](FP32, FP32)
    with torch.autocast("cpu", torch.float16), pytest.raises(NotImplementedError, match="Half is not supported"):
        CASES["feed_forward_block"][0](*inputs)
