"""Worker threads: as many communicators move at once as there are workers, each on the CPU that CCL_WORKER_AFFINITY names."""

import os
import re

import pytest

from tests.multiprocess.ccl_ranks import PROGRAMS, start
from tests.multiprocess.ranks import EnvRanks


def run(folder, size: int, workers: int, **env) -> list[tuple[int, list[tuple[int, str]]]]:
    """By rank: how many workers were at work together, and the thread and CPUs of each communicator."""
    with start(folder, size, program="ccl_workers", CCL_WORKER_COUNT=str(workers), **env) as ranks:
        outputs = ranks.succeed(timeout_s=90)
    seen = []
    for output in outputs:
        served = re.findall(r"communicator \d: thread (\d) on (.*)", output)
        seen.append((int(re.search(r"together: (\d)", output)[1]), [(int(thread), cpus) for thread, cpus in served]))
    return seen


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_as_many_communicators_move_at_once_as_there_are_workers(tmp_path, workers):
    for together, served in run(tmp_path, 2, workers):
        assert together == workers
        threads = [thread for thread, _ in served]
        assert len(set(threads)) == workers
        # In turn: communicators that share a worker are `workers` apart.
        assert all(threads[i] == threads[i - workers] for i in range(workers, 4)), threads


needs_two_cpus = pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1")


@needs_two_cpus
@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        ("1,0", [["1", "0"], ["1", "0"]]),  # the same for each rank
        ("0,1,1,0", [["0", "1"], ["1", "0"]]),  # one per worker, in rank order
        ("0-1,1,1,7,7", [["0", "1"], ["1", "1"]]),  # what is left over is not used
    ],
)
def test_affinity_names_the_cpu_of_each_worker(tmp_path, cpus, expected):
    for (_, served), mine in zip(run(tmp_path, 2, 2, CCL_WORKER_AFFINITY=cpus), expected, strict=True):
        assert [where for _, where in served] == mine * 2


@pytest.mark.parametrize("cpus", ["0", "0,1,0", "zero"])
def test_affinity_that_does_not_fit_is_refused(tmp_path, cpus):
    env = {"STORE": str(tmp_path / "store"), "CCL_WORKER_COUNT": "2", "CCL_WORKER_AFFINITY": cpus}
    with EnvRanks([str(PROGRAMS / "ccl_workers")], size=2, logs=tmp_path, env=env) as ranks:
        assert ranks.wait(timeout_s=30) == [3, 3]
        said = [ranks.output(rank) for rank in range(2)]
    wanted = "expected auto, or numbers" if cpus == "zero" else "expected 2, for each rank the same, or 4, one per worker"
    assert all(wanted in output for output in said), said
