"""bench/optim runs, checks its answers and compares."""

import pathlib
import subprocess
import sys

import pytest

RUN = pathlib.Path(__file__).resolve().parents[2] / "bench" / "optim" / "run.py"


@pytest.mark.long
def test_every_optimizer_is_compared_with_torchs():
    options = ["--models", "MiniLM-L6-H384", "--repetitions", "1"]
    result = subprocess.run([sys.executable, str(RUN), *options], capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 8 and all("GB/s" in line and "x torch fused" in line for line in lines), result.stdout
