"""A training step has the same bits from run to run and, with TRIREME_DETERMINISTIC=1, for any number of threads. Each run is a process of its own: MKL
looks at its variable once."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: pip install -r tests/requirements.txt")

# Two steps of an optimized model: embeddings, encoder, loss, clipping, AdamW. The products of its shapes may have the same bits anyway, so there is one
# more, whose bits do depend on MKL's number of threads.
PROGRAM = """
import hashlib, sys, torch, transformers, trireme

torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(3)
config = transformers.BertConfig(vocab_size=3000, hidden_size=384, num_hidden_layers=2, num_attention_heads=12, intermediate_size=1536)
model = transformers.BertForQuestionAnswering(config).train()
dtype = {"fp32": None, "bf16": torch.bfloat16}[sys.argv[2]]
model, optimizer = trireme.optimize(model, torch.optim.AdamW(model.parameters(), lr=1e-4), dtype=dtype)
optimizer.max_grad_norm = 1.0
lengths = torch.tensor([161, 33, 150, 97, 161, 120, 90, 63, 161, 44, 161, 161])
mask = (torch.arange(161) < lengths[:, None]).long()
ids = torch.randint(0, 3000, mask.shape) * mask
for _ in range(2):
    optimizer.zero_grad()
    loss = model(input_ids=ids, attention_mask=mask, start_positions=lengths // 2, end_positions=lengths // 2 + 1).loss
    loss.backward()
    optimizer.step()
product = torch.randn(1932, 384).t() @ torch.randn(1932, 2)
digest = hashlib.sha256(loss.detach().float().numpy().tobytes() + product.numpy().tobytes())
for parameter in model.parameters():
    for tensor in (parameter.detach(), parameter.grad, *optimizer.state[parameter].values()):
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
print(digest.hexdigest())
"""


def bits_of(threads: int, dtype: str = "fp32", **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("MKL_CBWR", "TRIREME_DETERMINISTIC")}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(threads), dtype]
    done = subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


@pytest.mark.parametrize("products", ["trireme", "torch"])
def test_the_same_bits_for_any_number_of_threads(products):
    settings = {"TRIREME_DETERMINISTIC": "1", "TRIREME_MATMUL": products}
    assert bits_of(1, **settings) == bits_of(2, **settings)


def test_the_same_bits_in_bf16():
    """With products in bf16, which are torch's, that is oneDNN's, whether this CPU has instructions for them or not; there are CPUs on which AMX ends the process."""
    settings = {"TRIREME_DETERMINISTIC": "1", "TRIREME_BF16": "native", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
    assert bits_of(1, "bf16", **settings) == bits_of(2, "bf16", **settings)


@pytest.mark.long
def test_the_same_bits_from_run_to_run():
    assert bits_of(2) == bits_of(2)
