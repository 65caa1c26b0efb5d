"""bench/c10d runs, checks its answers and compares."""

import pathlib
import subprocess
import sys

import pytest

RUN = pathlib.Path(__file__).resolve().parents[2] / "bench" / "c10d" / "run.py"
OPERATIONS = "allreduce,broadcast,reduce,allgather,reduce_scatter,alltoall,gather,scatter,sendrecv,barrier"


@pytest.mark.long
def test_every_operation_is_compared_with_gloo():
    options = ["--ranks", "2", "--operations", OPERATIONS, "--sizes", "1024", "--models", ""]
    result = subprocess.run([sys.executable, str(RUN), *options], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    table = result.stdout.partition("times as fast as gloo")[2].splitlines()
    for operation in OPERATIONS.split(","):
        assert sum(f"  {operation} " in line for line in table) == 2, result.stdout  # from malloc, and from the backend's memory
