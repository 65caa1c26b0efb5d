"""Ranks that die or give up in the middle of training: the others raise at once and say who; torchrun starts them again."""

import os
import pathlib
import signal
import sys
import time

import pytest

from tests.multiprocess.ranks import Ranks

from . import jobs

FOREVER = "1000000"


def pid(traces: pathlib.Path, attempt: int, rank: int, timeout_s: float = 120) -> int:
    """Of a rank, once it trains."""
    path = traces / f"{attempt}-{rank}.pid"
    deadline = time.monotonic() + timeout_s
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"rank {rank} of attempt {attempt} did not begin to train in {timeout_s} s"
        time.sleep(0.02)
    return int(path.read_text())


def error_of(traces: pathlib.Path, attempt: int, rank: int, timeout_s: float = 30) -> tuple[float, str]:
    """(when, what) a rank raised."""
    path = traces / f"{attempt}-{rank}.error"
    deadline = time.monotonic() + timeout_s
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"rank {rank} of attempt {attempt} raised nothing for {timeout_s} s"
        time.sleep(0.02)
    when, _, what = path.read_text().partition(" ")
    return float(when), what


def test_a_killed_rank_is_named_by_the_others_within_two_seconds(tmp_path):
    with jobs.start("training_loop.py", 3, tmp_path, FOREVER, str(tmp_path)) as ranks:
        for rank in range(3):
            pid(tmp_path, 0, rank)
        killed = time.time()
        ranks.kill(1)
        for survivor in (0, 2):
            when, what = error_of(tmp_path, 0, survivor)
            assert when - killed < 2, f"after {when - killed:.1f} s: {what}"
            assert "DistNetworkError" in what and "rank 1" in what, what
        codes = ranks.wait(30)
        assert codes[1] == -signal.SIGKILL and codes[0] not in (0, None) and codes[2] != 0


def test_an_exception_in_one_rank_ends_the_others(tmp_path):
    with jobs.start("training_loop.py", 2, tmp_path, FOREVER, str(tmp_path), env={"FAIL_RANK": "1"}) as ranks:
        codes = ranks.wait(120)
        assert codes == [1, 1], ranks.outputs()
        assert "ZeroDivisionError" in ranks.output(1)
        assert "DistNetworkError" in ranks.output(0) and "rank 1" in ranks.output(0)


class Torchrun(Ranks):
    """One torchrun with its workers."""

    def __init__(self, size: int, restarts: int, logs: pathlib.Path, env: dict[str, str]):
        super().__init__(size, logs)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(size), "--max-restarts", str(restarts)]
        rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--monitor-interval", "0.1"]
        program = [str(jobs.PROGRAMS / "training_loop.py"), FOREVER, str(logs)]
        self._popen(None, [*torchrun, *rendezvous, *program], env, "torchrun.log")


def kills(count: int):
    return pytest.param(count, marks=pytest.mark.long) if count > 10 else count


@pytest.mark.parametrize("store", ["shared", "fresh"])
@pytest.mark.parametrize("restarts", [kills(10), kills(50)])
def test_torchrun_starts_again_after_each_kill(tmp_path, store, restarts):
    """The store outlives the ranks or not; keys of the incarnations before are still in a shared one."""
    env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0" if store == "shared" else "1", "OMP_NUM_THREADS": "1", "LAST_ATTEMPT": str(restarts)}
    with Torchrun(2, restarts, tmp_path, env) as job:
        for attempt in range(restarts):
            victim = attempt % 2
            pids = [pid(tmp_path, attempt, rank) for rank in range(2)]
            killed = time.time()
            os.kill(pids[victim], signal.SIGKILL)
            when, what = error_of(tmp_path, attempt, 1 - victim)
            assert when - killed < 5 and f"rank {victim}" in what, f"{when - killed:.1f} s: {what}"
        assert job.wait(120) == [0], job.outputs()
    assert (tmp_path / f"{restarts}-0.done").exists() and (tmp_path / f"{restarts}-1.done").exists()
