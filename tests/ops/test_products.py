"""TRIREME_MATMUL: whose matrix products the encoder's layers take, which changes rounding and nothing else. Each run is a process of its own: the variable is read
once."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch

PROGRAM = """
import sys, torch
from trireme import ops

tokens, hidden = int(sys.argv[1]), int(sys.argv[2])
generator = torch.Generator().manual_seed(1)
draw = lambda *shape: torch.randn(shape, generator=generator).div_(shape[-1] ** 0.5).requires_grad_()
x, bounds = draw(tokens, hidden), torch.tensor([0, tokens // 3, tokens])
square = [draw(hidden, hidden) if i % 2 == 0 else draw(hidden) for i in range(8)]
wide = [draw(4 * hidden, hidden), draw(4 * hidden), draw(hidden, 4 * hidden), draw(hidden)]
norms = [draw(hidden) for _ in range(4)]
y = ops.self_attention_block(x, [*square, *norms[:2]], bounds, heads=2, attention_p=0.0, hidden_p=0.0, eps=1e-12)
y = ops.feed_forward_block(y, [*wide, *norms[2:]], tanh=False, hidden_p=0.0, eps=1e-12)
y.backward(torch.randn(y.shape, generator=generator))
torch.save([y.detach(), *(tensor.grad for tensor in (x, *square, *wide, *norms))], sys.argv[3])
"""


def run(tokens: int, hidden: int, to: pathlib.Path, products: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tokens), str(hidden), str(to)]
    return subprocess.run(command, env={**os.environ, "TRIREME_MATMUL": products}, capture_output=True, text=True, timeout=300)


def results(tokens: int, hidden: int, to: pathlib.Path, products: str) -> list[torch.Tensor]:
    done = run(tokens, hidden, to, products)
    assert done.returncode == 0, done.stderr
    return torch.load(to)


def test_both_agree(tmp_path):
    ours, torchs = (results(700, 384, tmp_path / name, name) for name in ("trireme", "torch"))
    assert any(not torch.equal(mine, wanted) for mine, wanted in zip(ours, torchs)), "the variable had no effect"
    for mine, wanted in zip(ours, torchs, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("tokens, hidden", [(40, 40), (200, 18)], ids=["few rows", "odd columns"])
def test_what_ours_cannot_do_well_is_left_to_torch(tokens, hidden, tmp_path):
    ours, torchs = (results(tokens, hidden, tmp_path / name, name) for name in ("trireme", "torch"))
    for mine, wanted in zip(ours, torchs, strict=True):
        assert torch.equal(mine, wanted)


def test_a_wrong_value_is_refused(tmp_path):
    done = run(100, 32, tmp_path / "none", "mkl")
    assert done.returncode != 0
    assert "TRIREME_MATMUL=mkl: expected auto|trireme|torch" in done.stderr
