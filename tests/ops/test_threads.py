"""torch.set_num_threads counts in every thread of a program: OpenMP's own number is that of the thread that set it."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("trireme.ops")

PROGRAM = """
import os, threading, torch, trireme

torch.set_num_threads(1)
weight, gradient = torch.nn.Parameter(torch.randn(1024, 1024)), torch.randn(1024, 1024)
rows, vector = torch.randn(4096, 1024), torch.ones(1024)
torch.layer_norm(rows, (1024,))
trireme.ops.layer_norm(torch.ones(1, 8), torch.ones(8), torch.ones(8), 1e-5)  # loads the library
calls = {
    "layer_norm": lambda: trireme.ops.layer_norm(rows, vector, vector, 1e-5),
    "feed_forward_block": lambda: trireme.ops.feed_forward_block(rows[:256], [gradient, vector, gradient, vector, vector, vector], False, 0.0, 1e-5),
    "global_norm": lambda: torch.ops.trireme.global_norm([rows]),
    "round_bf16": lambda: torch.ops.trireme.round_bf16(rows),
    "step": lambda: (setattr(weight, "grad", gradient), trireme.optim.AdamW([weight]).step()),
}


def started_by(name):
    before = len(os.listdir("/proc/self/task"))
    calls[name]()
    print(name, len(os.listdir("/proc/self/task")) - before)


for name in calls:
    thread = threading.Thread(target=started_by, args=(name,))
    thread.start()
    thread.join()
"""


def test_a_thread_of_the_program_starts_no_more_than_torch_has():
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == [f"{name} 0" for name in ("layer_norm", "feed_forward_block", "global_norm", "round_bf16", "step")]
