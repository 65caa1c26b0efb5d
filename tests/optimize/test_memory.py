"""Large tensors get the memory of those that were freed, from the first optimize on."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch, trireme
trireme.optimize(torch.nn.Sequential(torch.nn.LayerNorm(8)))
first = torch.empty(8 << 20).data_ptr()  # 32 MiB, freed at once
second = torch.empty(8 << 20).data_ptr()
print(first == second, first % (2 << 20) == 0)  # malloc's large blocks begin 16 bytes into a page
"""


@pytest.mark.parametrize(("keep", "printed"), [("1", "True True"), ("0", "False")])
def test_memory_of_large_tensors_is_kept(keep, printed):
    environment = {**os.environ, "TRIREME_KEEP_BLOCKS": keep}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith(printed)
