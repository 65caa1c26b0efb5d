"""bench/c10d runs, checks its answers and compares."""

import importlib.util
import pathlib
import subprocess
import sys

import pytest

RUN = pathlib.Path(__file__).resolve().parents[2] / "bench" / "c10d" / "run.py"
OPERATIONS = "allreduce,broadcast,reduce,allgather,reduce_scatter,alltoall,gather,scatter,sendrecv,barrier"


@pytest.mark.parametrize("backend_us, met", [(1090.0, True), (1200.0, False)])
def test_buckets_have_a_target(backend_us, met, capsys):
    spec = importlib.util.spec_from_file_location("bench_c10d", RUN)
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    bucket = {"kind": "bucket", "bytes": 25 << 20, "ranks": 2, "library_us": 1000.0, "backend_us": backend_us, "added_us": backend_us - 1000}
    assert bench.check_targets([bucket]) == met
    assert f"{'PASS' if met else 'FAIL'}  allreduce of a bucket: {backend_us / 1000:.2f} times the library's" in capsys.readouterr().out


@pytest.mark.long
def test_every_operation_is_compared_with_gloo():
    options = ["--ranks", "2", "--operations", OPERATIONS, "--sizes", "1024", "--models", ""]
    result = subprocess.run([sys.executable, str(RUN), *options], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    table = result.stdout.partition("times as fast as gloo")[2].splitlines()
    for operation in OPERATIONS.split(","):
        assert sum(f"  {operation} " in line for line in table) == 2, result.stdout  # from malloc, and from the backend's memory
