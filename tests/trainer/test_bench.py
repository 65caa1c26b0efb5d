"""`trireme bench`: every collective between real processes, its answers and what it prints."""

import json
import subprocess

import pytest

from .runs import TRIREME, needs_program

pytestmark = needs_program

WITH_SIZES = ["allreduce", "reduce", "broadcast", "allgather", "alltoall", "reduce_scatter"]


def bench(ranks: int, *flags) -> str:
    words = ["mpirun", "-n", ranks, "-genv", "OMP_NUM_THREADS=1", TRIREME, "bench", "--seconds", 0.01, *flags]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("more", [[], ["--dtype", "bfloat16"], ["--shared_buffers"]], ids=["float32", "bfloat16", "shared"])
def test_every_collective_is_checked_and_each_size_timed_once(more):
    """Three ranks, with sizes that they cannot share evenly."""
    found = json.loads(bench(3, "--collectives", *WITH_SIZES, "barrier", "--min_bytes", 4, "--max_bytes", 300, "--json", *more))
    element = 2 if "bfloat16" in more else 4
    for collective in WITH_SIZES:
        sizes = [each["bytes"] for each in found if each["collective"] == collective]
        assert sizes == sorted(set(sizes)) and len(sizes) >= 3 and all(size % (3 * element) == 0 for size in sizes), found
    (barrier,) = (each for each in found if each["collective"] == "barrier")
    assert barrier.keys() == {"collective", "seconds"} and all(each["seconds"] > 0 for each in found)


def test_a_barrier_has_no_size_in_the_table():
    lines = bench(2, "--collectives", "allreduce", "barrier", "--min_bytes", 1024, "--max_bytes", 1024).splitlines()
    assert lines[-3].split() == ["collective", "bytes", "microseconds", "GB/s"]
    assert len(lines[-2].split()) == 4 and lines[-2].split()[:2] == ["allreduce", "1024"]
    assert len(lines[-1].split()) == 2 and lines[-1].startswith("barrier")
