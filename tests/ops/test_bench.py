"""The benchmarks of operators and optimizers run, check their answers and compare."""

import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


def lines_of(program: str, *options: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", str(BENCH / program), *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.long
def test_every_optimizer_is_compared_with_torchs():
    lines = lines_of("optim/run.py", "--models", "MiniLM-L6-H384", "--repetitions", "1")
    assert len(lines) == 8 and all("GB/s" in line and "x torch fused" in line for line in lines), lines


@pytest.mark.parametrize("only", ["span_loss", pytest.param("", marks=pytest.mark.long)])
def test_operators_are_compared_with_torchs(only):
    lines = lines_of("kernels/run.py", "--dtypes", "fp32", "--seconds", "0.01", "--only", only)
    assert len(lines) == (1 if only else 19) and all("torch" in line and "trireme" in line for line in lines), lines
