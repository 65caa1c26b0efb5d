"""TRIREME_DETERMINISTIC=1: a training step has the same bits for any number of threads. In a process of its own: MKL looks at its variable once."""

import os
import subprocess
import sys

PROGRAM = """
import sys, torch, trireme.ops as ops

def step(threads):
    torch.set_num_threads(threads)
    torch.manual_seed(3)
    H, heads, lengths = 384, 12, torch.tensor([0, 161, 33, 384, 250, 97, 384, 300, 323])
    cu_seqlens = lengths.cumsum(0)
    parameters = [torch.randn(shape) * 0.05 for shape in [(H, H), (H,)] * 4 + [(H,), (H,)]]
    inner = [torch.randn(shape) * 0.05 for shape in [(4 * H, H), (4 * H,), (H, 4 * H), (H,), (H,), (H,)]]
    head = torch.randn(2, H)
    leaves = [x.requires_grad_() for x in (*parameters, *inner, head)]
    x = torch.randn(int(cu_seqlens[-1]), H, requires_grad=True)
    y = ops.self_attention_block(x, parameters, cu_seqlens, heads, 0.1, 0.1, 1e-12)
    y = ops.feed_forward_block(y, inner, False, 0.1, 1e-12)
    (y @ head.t()).square().mean().backward()
    return [y.detach(), x.grad, *(leaf.grad for leaf in leaves)]

one, two = step(1), step(2)
print(sum(not torch.equal(a, b) for a, b in zip(one, two)), "of", len(one), "differ")
"""


def run(**environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("MKL_CBWR", "TRIREME_DETERMINISTIC")}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], env={**clean, **environment}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_same_bits_for_any_number_of_threads():
    assert run(TRIREME_DETERMINISTIC="1").startswith("0 of")


def test_a_run_repeats_itself_without_it():
    assert run() == run()
