"""The benchmarks of operators and optimizers run, check their answers and compare."""

import pathlib
import re
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


def lines_of(program: str, *options: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", str(BENCH / program), *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


STEPS = ("AdamW", "Adam", "SGD", "Adagrad", "Lamb")
PASSES = ("global norm, fp32", "global norm, bf16", "fp32 to bf16", "bf16 to fp32", "fp32 to split bf16", "split bf16 to fp32")


def test_every_optimizer_is_compared_with_torchs():
    lines = lines_of("optim/run.py", "--quick")
    compared: dict[str, set[str]] = {}
    for line in lines:
        _, case, who, *_ = re.split(" {2,}", line)
        compared.setdefault(case, set()).add(who)
        assert line.endswith("torch has none") if case.startswith("Lamb") else " x torch" in line, line
    ours, torchs = {"trireme", "trireme split bf16"}, {"torch fused", "torch foreach"}
    expected = {name + clipped: ours if name == "Lamb" else ours | torchs for name in STEPS for clipped in ("", ", clipped")}
    assert compared == expected | {name: {"trireme", "torch"} for name in PASSES}


@pytest.mark.parametrize("only", ["span_loss", pytest.param("", marks=pytest.mark.long)])
def test_operators_are_compared_with_torchs(only):
    lines = lines_of("kernels/run.py", "--dtypes", "fp32", "--seconds", "0.01", "--only", only)
    assert len(lines) == (1 if only else 23) and all("torch" in line and "trireme" in line for line in lines), lines
