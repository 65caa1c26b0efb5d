"""What torch's own tools ask of an operator: its schema is true, its shapes are known without computing, torch.compile sees through it."""

import pytest
import torch

from .samples import CU_SEQLENS, END, IDS, PLACES, SAMPLES, START

OPS = torch.ops.trireme


def make(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    own = torch.Generator().manual_seed(4)
    return [torch.randn(shape, generator=own) for shape in shapes]


def parts() -> dict[str, tuple]:
    """Calls of X_forward and X_backward."""
    x, residual, dy = make((2, 5, 16), (2, 5, 16), (2, 5, 16))
    bias, gamma, beta = make((16,), (16,), (16,))
    rows = torch.ones(10)
    seeds, no_seeds = torch.tensor([5]), torch.empty(0, dtype=torch.long)
    word, position, kind, dz = make((12, 16), (6, 16), (2, 16), (11, 16))
    tables = (IDS, word, PLACES, position, PLACES % 2, kind)
    per_token = torch.ones(11)
    (logits,) = make((11, 2))
    q, k, v = make(*[(11, 2, 8)] * 3)
    packed, wq, bq, w1, b1, w2 = make((11, 16), (16, 16), (16,), (24, 16), (24,), (16, 24))
    attention_weights = [wq, bq] * 4 + [gamma, beta]
    return {
        "layer_norm_forward": (x, gamma, beta, 1e-5),
        "layer_norm_backward": (dy, x, gamma, rows, rows, 0b011),
        "bias_gelu_forward": (x, bias, True),
        "bias_gelu_backward": (dy, x, bias, True, 0b11),
        "bias_dropout_residual_layer_norm_forward": (x, bias, residual, gamma, beta, 0.3, 1e-5, seeds),
        "bias_dropout_residual_layer_norm_backward": (dy, x, gamma, rows, rows, 0.3, seeds, 0b11101),
        "bias_dropout_residual_forward": (x, bias, residual, 0.3, seeds),
        "bias_dropout_residual_backward": (dy, 0.0, no_seeds, 0b011),
        "dropout_forward": (x, 0.3, seeds),
        "embedding_forward": (*tables, gamma, beta, 0.3, 1e-5, seeds),
        "embedding_backward": (dz, *tables, gamma, per_token, per_token, 0.3, [1, -1, -1], seeds, 0b11001010),
        "span_loss_forward": (logits, CU_SEQLENS, START, END),
        "span_loss_backward": (torch.ones(()), logits, CU_SEQLENS, START, END),
        "attention_forward": (q, k, v, CU_SEQLENS, None, 0.3, False, 0.3, seeds),
        "self_attention_block_forward": (packed, attention_weights, CU_SEQLENS, 2, 0.3, 0.3, 1e-5, torch.tensor([5, 6])),
        "feed_forward_block_forward": (packed, [w1, b1, w2, bias, gamma, beta], False, 0.3, 1e-5, seeds),
    }


@pytest.mark.parametrize("name", parts())
def test_parts_keep_their_promises(name):
    """opcheck: nothing is changed or shared that the schema does not name, and the Meta implementation gives the same shapes and types."""
    torch.library.opcheck(getattr(OPS, name).default, parts()[name], test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("lay", [lambda x: x, lambda x: x.t(), lambda x: x.t()[:, ::2]], ids=["whole", "turned", "with gaps"])
def test_results_of_bf16_lie_where_they_are_said_to(lay):
    weights = lay(torch.randn(8, 6))
    upper, lower = OPS.split_bf16(weights)
    calls = {"round_bf16": (weights,), "widen_bf16": (weights.to(torch.bfloat16),), "split_bf16": (weights,), "join_bf16": (upper, lower)}
    calls["join_bf16 "] = (weights.to(torch.bfloat16), lay(torch.zeros(8, 6, dtype=torch.int16)))
    for name, arguments in calls.items():
        torch.library.opcheck(getattr(OPS, name.strip()).default, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SAMPLES)
def test_compiled(name, dtype):
    """In one graph, forward and backward, with the same bits."""
    torch.compiler.reset()
    sample = SAMPLES[name]
    compiled = torch.compile(sample.call, fullgraph=True, backend="aot_eager")
    results = []
    for call in (sample.call, compiled):
        inputs = sample.inputs(dtype)
        torch.manual_seed(3)
        y = call(*inputs)
        results.append([y.detach(), *torch.autograd.grad(y, inputs, torch.ones_like(y))])
    for eager, traced in zip(*results):
        assert eager.dtype == traced.dtype and torch.equal(eager, traced)


def test_compiled_with_frozen_parameters_and_other_lengths():
    """One graph for every number of rows; gradients that are not wanted are not in it."""
    torch.compiler.reset()
    sample = SAMPLES["bias_dropout_residual_layer_norm"]
    compiled = torch.compile(sample.call, fullgraph=True, backend="aot_eager", dynamic=True)
    _, bias, _, gamma, beta = (x.detach() for x in sample.inputs())
    for rows in (11, 29, 17):
        results = []
        for call in (sample.call, compiled):
            x, residual = torch.linspace(-1, 2, rows * 16).view(rows, 16).requires_grad_(), torch.ones(rows, 16)
            torch.manual_seed(3)
            y = call(x, bias, residual, gamma, beta)
            results.append((y.detach(), *torch.autograd.grad(y.square().sum(), x)))
        assert all(map(torch.equal, *results))


def test_compiled_under_autocast():
    torch.compiler.reset()
    sample = SAMPLES["feed_forward_block"]
    compiled = torch.compile(sample.call, fullgraph=True, backend="aot_eager")
    results = []
    for call in (sample.call, compiled):
        inputs = sample.inputs()
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16):
            y = call(*inputs)
        results.append([y.detach(), *torch.autograd.grad(y, inputs, torch.ones_like(y))])
    assert results[0][0].dtype == torch.bfloat16
    for eager, traced in zip(*results):
        assert eager.dtype == traced.dtype and torch.equal(eager, traced)
