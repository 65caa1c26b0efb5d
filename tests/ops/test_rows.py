"""Operators over rows against plain torch in double: results and every gradient."""

import pytest
import torch

from trireme import ops

from .reference import ROWS, Case, assert_close, bound, mask

SEED = 5
FP32, BF16 = torch.float32, torch.bfloat16
TYPES = [(FP32, FP32), (FP32, BF16), (BF16, FP32), (BF16, BF16)]  # of activations, of parameters
WITH_AND_WITHOUT_DROPOUT = [(name, p) for name, case in ROWS.items() for p in ((0.0, 0.3) if case.has_dropout else (0.0,))]


def make_inputs(case: Case, shape: tuple[int, ...], types=(FP32, FP32), without: frozenset[str] = frozenset()) -> dict[str, torch.Tensor | None]:
    torch.manual_seed(len(shape) * 1000 + shape[-1])
    inputs = {name: torch.randn(size).to(types[name in case.parameters]) for name, size in case.shapes(shape).items()}
    return {name: None if name in without else x.requires_grad_() for name, x in inputs.items()}


def run(function, argument, inputs, output_gradient):
    """The result, and the gradient of each input that wants one."""
    y = function(argument, **inputs)
    wanted = {name: x for name, x in inputs.items() if x is not None and x.requires_grad}
    return y.detach(), dict(zip(wanted, torch.autograd.grad(y, list(wanted.values()), output_gradient.to(y.dtype))))


def compare(case: Case, inputs, p: float, limit: float) -> None:
    """The operator against its reference. Both get the same numbers: what is rounded to bfloat16 is so before."""
    exact = {name: None if x is None else x.detach().double().requires_grad_(x.requires_grad) for name, x in inputs.items()}
    x = inputs["x"]
    dy = torch.randn(x.shape).to(x.dtype)
    keep = mask(tuple(x.shape), p, SEED)
    torch.manual_seed(SEED)
    y, gradients = run(case.call, p, inputs, dy)
    expected, expected_gradients = run(case.reference, keep, exact, dy.double())
    assert y.dtype == x.dtype
    assert_close(y, expected, limit, "y")
    for name, gradient in gradients.items():
        assert gradient.dtype == inputs[name].dtype, f"the gradient of {name} is {gradient.dtype}"
        assert_close(gradient, expected_gradients[name], limit, f"the gradient of {name}")


@pytest.mark.parametrize("types", TYPES, ids=lambda types: "-".join(str(each).removeprefix("torch.") for each in types))
@pytest.mark.parametrize("shape", [(5, 67), (2, 3, 129), (40, 8), (9,)], ids=str)
@pytest.mark.parametrize("name, p", WITH_AND_WITHOUT_DROPOUT)
def test_is_torchs(name, p, shape, types):
    case = ROWS[name]
    inputs = make_inputs(case, shape, types)
    rows = torch.Size(shape[:-1]).numel()
    compare(case, inputs, p, max(bound(each, rows + shape[-1]) for each in types))


@pytest.mark.parametrize("name", ROWS)
def test_optional_parameters(name):
    case = ROWS[name]
    for without in [frozenset({each}) for each in case.optional] + [case.optional]:
        inputs = make_inputs(case, (6, 33), without=without)
        compare(case, inputs, 0.0, bound(FP32, 39))


@pytest.mark.parametrize("name, p", WITH_AND_WITHOUT_DROPOUT)
def test_only_what_is_wanted(name, p):
    """Every single argument with a gradient, the others frozen."""
    case = ROWS[name]
    for wanted in make_inputs(case, (6, 33)):
        inputs = {each: x.requires_grad_(each == wanted) for each, x in make_inputs(case, (6, 33)).items()}
        compare(case, inputs, p, bound(FP32, 39))


@pytest.mark.parametrize("name", ROWS)
def test_no_rows(name):
    case = ROWS[name]
    for shape in [(0, 16), (2, 0, 16)]:
        inputs = make_inputs(case, shape)
        y, gradients = run(case.call, 0.5 if case.has_dropout else 0.0, inputs, torch.zeros(shape))
        assert y.shape == shape
        for each, gradient in gradients.items():
            assert gradient.shape == inputs[each].shape and not gradient.any()


@pytest.mark.parametrize("name", ROWS)
def test_inputs_that_do_not_lie_end_to_end(name):
    """Transposed, and every second column; the gradient that comes back too."""
    case = ROWS[name]

    def spread(x):
        wide = torch.empty(*x.shape[:-1], 2 * x.shape[-1], dtype=x.dtype)
        return wide[..., ::2].copy_(x.detach()).requires_grad_()

    def transposed(x):
        return x.detach().mT.contiguous().mT.requires_grad_() if x.dim() > 1 else spread(x)

    plain = make_inputs(case, (2, 5, 33))
    dy = torch.randn(2, 5, 33)
    for change in (spread, transposed):
        changed = {each: change(x) for each, x in plain.items()}
        assert not changed["x"].is_contiguous()
        results = []
        for inputs, gradient in ((plain, dy), (changed, change(dy).detach())):
            torch.manual_seed(SEED)
            results.append(run(case.call, 0.3 if case.has_dropout else 0.0, inputs, gradient))
        assert torch.equal(results[0][0], results[1][0])
        for each, gradient in results[0][1].items():
            assert torch.equal(gradient, results[1][1][each]), each


@pytest.mark.parametrize("name", ROWS)
def test_other_types_are_refused(name):
    case = ROWS[name]
    inputs = {each: x.detach().double() for each, x in make_inputs(case, (3, 8)).items()}
    with pytest.raises(NotImplementedError, match="Double|float32 and bfloat16"):
        case.call(0.5 if case.has_dropout else 0.0, **inputs)


def test_wrong_shapes_are_named():
    x = torch.randn(3, 8)
    with pytest.raises(RuntimeError, match=r"layer_norm: gamma is \[7\]; it must be \[8\]"):
        ops.layer_norm(x, torch.ones(7), None, 1e-5)
    with pytest.raises(RuntimeError, match=r"the residual is \[1, 8\]"):
        ops.bias_dropout_residual(x, None, torch.ones(1, 8), 0.0)
    with pytest.raises(ValueError, match="probability is 1.5"):
        ops.dropout(x, 1.5)


def test_a_residual_of_another_type_is_promoted():
    """As torch's addition does: under autocast a dense layer gives bfloat16, and the residual is still float32."""
    x, residual = torch.randn(4, 8, dtype=BF16, requires_grad=True), torch.randn(4, 8, requires_grad=True)
    y = ops.bias_dropout_residual(x, None, residual, 0.0)
    assert y.dtype == FP32 and torch.equal(y, x.float() + residual)
    y.sum().backward()
    assert x.grad.dtype == BF16 and residual.grad.dtype == FP32
