"""Gradients against numerical derivatives, dropout included. torch's gradcheck wants double, which the kernels do not have."""

import pytest
import torch

from .samples import SAMPLES

STEP = 2**-6


@pytest.mark.parametrize("name", SAMPLES)
def test_gradient_is_the_slope(name):
    """f(t) = <w, op(inputs + t directions)> along directions of one argument at a time. The central difference of fourth order,

        (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / (12 h)

    is off by h^4 f'''''/30 and by the rounding of f, 18 u |f| / (12 h): with h = 2^-6, about 2e-9 f''''' and 6e-6 |f|, where |f| stands for the
    norms of w and op, whose product it is. The directions have norm 1, so that derivatives stay near 1."""
    sample = SAMPLES[name]
    inputs = sample.inputs()
    torch.manual_seed(1)
    y = sample.call(*inputs)
    own = torch.Generator().manual_seed(2)
    weight = torch.randn(y.shape, generator=own)
    gradients = torch.autograd.grad(y, inputs, weight)
    scale = (weight.norm() * y.norm()).item()
    for i, gradient in enumerate(gradients):
        direction = torch.randn(gradient.shape, generator=own)
        direction /= direction.norm()

        def f(t: float) -> float:
            moved = [x.detach() + (t * direction if j == i else 0) for j, x in enumerate(inputs)]
            torch.manual_seed(1)
            return (sample.call(*moved).double() * weight.double()).sum().item()

        slope = (8 * (f(STEP) - f(-STEP)) - (f(2 * STEP) - f(-2 * STEP))) / (12 * STEP)
        expected = (gradient.double() * direction.double()).sum().item()
        assert slope == pytest.approx(expected, abs=1e-5 * scale + 1e-4 * abs(expected)), f"argument {i}"


@pytest.mark.parametrize("name", SAMPLES)
def test_a_second_derivative_is_an_error(name):
    inputs = SAMPLES[name].inputs()
    y = SAMPLES[name].call(*inputs)
    gradients = torch.autograd.grad(y, inputs, torch.ones_like(y, requires_grad=True), create_graph=True)
    with pytest.raises(RuntimeError, match="not implemented"):
        gradients[0].sum().backward()
