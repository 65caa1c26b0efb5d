"""TRIREME_MATMUL: whose matrix products the encoder's layers take, which changes rounding and nothing else. Each run is a process of its own: the variable is read
once."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch

# A layer forward and backward, and the same in double from plain torch. Arguments: where the results go, tokens, hidden size, dtype, how the matrices lie.
PROGRAM = """
import sys, torch
from torch.nn import functional
from trireme import ops

tokens, hidden, dtype, lie = int(sys.argv[2]), int(sys.argv[3]), getattr(torch, sys.argv[4]), sys.argv[5]
generator = torch.Generator().manual_seed(1)

def draw(*shape):
    made = torch.randn(shape, generator=generator).div_(shape[-1] ** 0.5).to(dtype)
    if lie == "transposed" and len(shape) == 2:
        made = made.t().contiguous().t()
    if lie == "with gaps" and len(shape) == 2:
        made = torch.stack([made, made], dim=2).flatten(1)[:, ::2]
    return made.requires_grad_()

x, bounds = draw(tokens, hidden), [0, tokens // 3, tokens] if tokens else [0]
square = [draw(hidden, hidden) if i % 2 == 0 else draw(hidden) for i in range(8)]
wide = [draw(4 * hidden, hidden), draw(4 * hidden), draw(hidden, 4 * hidden), draw(hidden)]
norms = [draw(hidden) for _ in range(4)]
inputs = [x, *square, *wide, *norms]
dy = torch.randn(tokens, hidden, generator=generator)
y = ops.self_attention_block(x, [*square, *norms[:2]], torch.tensor(bounds), heads=2, attention_p=0.0, hidden_p=0.0, eps=1e-12)
y = ops.feed_forward_block(y, [*wide, *norms[2:]], tanh=False, hidden_p=0.0, eps=1e-12)
y.backward(dy.to(dtype))
ours = [y.detach(), *(tensor.grad for tensor in inputs)]

exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
x, square, wide, norms = exact[0], exact[1:9], exact[9:13], exact[13:]
q, k, v = (functional.linear(x, square[i], square[i + 1]).view(tokens, 2, hidden // 2).transpose(0, 1) for i in (0, 2, 4))
parts = [slice(first, last) for first, last in zip(bounds, bounds[1:])]
context = [functional.scaled_dot_product_attention(q[:, part], k[:, part], v[:, part]) for part in parts]
context = torch.cat(context, dim=1).transpose(0, 1).reshape(tokens, hidden) if context else x
y = functional.layer_norm(x + functional.linear(context, square[6], square[7]), (hidden,), norms[0], norms[1], 1e-12)
inner = functional.linear(functional.gelu(functional.linear(y, wide[0], wide[1])), wide[2], wide[3])
y = functional.layer_norm(y + inner, (hidden,), norms[2], norms[3], 1e-12)
y.backward(dy.double())
zeros = [torch.zeros_like(tensor) if tensor.grad is None else tensor.grad for tensor in exact]
torch.save([ours, [y.detach(), *zeros]], sys.argv[1])
"""


def run(to: pathlib.Path, tokens=130, hidden=96, dtype="float32", lie="plain", **variables: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(to), str(tokens), str(hidden), dtype, lie]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300)


def results(to: pathlib.Path, *case, **variables: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    done = run(to, *case, **variables)
    assert done.returncode == 0, done.stderr
    return torch.load(to)


def both(to: pathlib.Path, *case) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    return tuple(results(to / name, *case, TRIREME_MATMUL=name)[0] for name in ("trireme", "torch"))


@pytest.mark.parametrize(
    "case",
    [(130, 96), (130, 96, "float32", "transposed"), (130, 96, "float32", "with gaps"), (700, 384), (0, 96)],
    ids=["plain", "transposed", "with gaps", "large", "no tokens"],
)
def test_ours_agree_with_double(case, tmp_path):
    for mine, wanted in zip(*results(tmp_path / "results", *case, TRIREME_MATMUL="trireme"), strict=True):
        torch.testing.assert_close(mine.double(), wanted, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("level", ["scalar", "avx2"])
def test_ours_agree_with_double_at_each_level(level, tmp_path):
    for mine, wanted in zip(*results(tmp_path / "results", TRIREME_MATMUL="trireme", TRIREME_MAX_ISA=level), strict=True):
        torch.testing.assert_close(mine.double(), wanted, rtol=1e-4, atol=2e-4)


def test_they_are_taken(tmp_path):
    assert any(not torch.equal(mine, wanted) for mine, wanted in zip(*both(tmp_path, 700, 384)))


@pytest.mark.parametrize(
    "case",
    [(40, 40), (200, 18), (130, 96, "bfloat16")],
    ids=["few rows", "odd columns", "bf16"],
)
def test_what_is_not_for_ours_is_left_to_torch(case, tmp_path):
    for mine, wanted in zip(*both(tmp_path, *case), strict=True):
        assert torch.equal(mine, wanted)


def test_a_wrong_value_is_refused(tmp_path):
    done = run(tmp_path / "none", TRIREME_MATMUL="mkl")
    assert done.returncode != 0
    assert "TRIREME_MATMUL=mkl: expected auto|trireme|torch" in done.stderr
