"""Ranks that die or give up in the middle of training: the others raise at once and say who; torchrun starts them again."""

import os
import pathlib
import re
import signal
import sys
import time

import pytest

from tests.attempts import best_of_three
from tests.multiprocess.ranks import Ranks

from . import jobs

FOREVER = "1000000"


def trace(traces: pathlib.Path, attempt: int, rank: int, name: str, timeout_s: float) -> str:
    """What a rank has left, when it has."""
    path = traces / f"{attempt}-{rank}.{name}"
    deadline = time.monotonic() + timeout_s
    while not path.exists():
        assert time.monotonic() < deadline, f"rank {rank} of attempt {attempt} left no {path.name} for {timeout_s} s"
        time.sleep(0.02)
    return path.read_text()


def pid(traces: pathlib.Path, attempt: int, rank: int) -> int:
    """Of a rank, once it trains."""
    return int(trace(traces, attempt, rank, "pid", timeout_s=120))


def error_of(traces: pathlib.Path, attempt: int, rank: int) -> tuple[float, str]:
    """(when, what) a rank raised; when by its own look at the clock, which is the same for all processes."""
    when, _, what = trace(traces, attempt, rank, "error", timeout_s=30).partition(" ")
    return float(when), what


@pytest.mark.parametrize("wiring", ["shared memory", "tcp"])
@pytest.mark.parametrize("loader_workers", [0, 2])
def test_a_killed_rank_is_named_by_the_others_within_two_seconds(tmp_path, wiring, loader_workers):
    """Also while forked workers of its DataLoader live on: they must not hold its connections open."""
    env = {"LOADER_WORKERS": str(loader_workers), "TRIREME_SHARED_MEMORY": "1" if wiring == "shared memory" else "0"}

    def once(folder):
        with jobs.start("training_loop.py", 3, folder, FOREVER, str(folder), env=env) as ranks:
            for rank in range(3):
                pid(folder, 0, rank)
            killed, took_s = time.monotonic(), []
            ranks.kill(1)
            for survivor in (0, 2):
                when, what = error_of(folder, 0, survivor)
                assert "DistNetworkError" in what and "rank 1" in what, what
                took_s.append(when - killed)
            codes = ranks.wait(120)
            assert codes[1] == -signal.SIGKILL and codes[0] not in (0, None) and codes[2] != 0
            return max(took_s)

    best_of_three(tmp_path, 2, once)


@pytest.mark.parametrize("pending", ["", "1"], ids=["at_rest", "with_a_message_pending"])
def test_an_exception_in_one_rank_ends_the_others(tmp_path, pending):
    env = {"FAIL_RANK": "1", "FAIL_WITH_PENDING": pending}
    with jobs.start("training_loop.py", 2, tmp_path, FOREVER, str(tmp_path), env=env) as ranks:
        raised = float(trace(tmp_path, 0, 1, "raised", timeout_s=120))
        when, what = error_of(tmp_path, 0, 0)
        # Between the two, Python takes the failing process down.
        assert when - raised < 8, f"after {when - raised:.1f} s: {what}"
        assert "rank 1" in what, what
        assert ranks.wait(120) == [1, 1], ranks.outputs()
        assert "ZeroDivisionError" in ranks.output(1)


def test_a_program_that_ends_while_tensors_are_let_go_of_ends_with_its_own_code(tmp_path):
    """Python ends threads that wait for its lock, in the middle of whatever they do."""
    for attempt in range(3):  # it took one or two
        folder = tmp_path / str(attempt)
        folder.mkdir()
        with jobs.start("dropped.py", 2, folder, "exit", "3") as ranks:
            assert ranks.wait(120) == [3, 3], ranks.outputs()


def test_letting_go_of_tensors_takes_one_thread(tmp_path):
    with jobs.start("dropped.py", 2, tmp_path, "threads") as ranks:
        assert ranks.wait(120) == [0, 0], ranks.outputs()
        for rank in range(2):
            more = int(re.search(r"(\d+) threads more", ranks.output(rank))[1])
            assert more <= 2, ranks.outputs()  # one, and a worker of ours


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
    took_s = []
    with Torchrun(2, restarts, tmp_path, env) as job:
        for attempt in range(restarts):
            victim = attempt % 2
            pids = [pid(tmp_path, attempt, rank) for rank in range(2)]
            killed = time.monotonic()
            os.kill(pids[victim], signal.SIGKILL)
            when, what = error_of(tmp_path, attempt, 1 - victim)
            assert f"rank {victim}" in what, what
            took_s.append(when - killed)
        assert job.wait(120) == [0], job.outputs()
    print(f"{restarts} kills; the survivor's error came after at most {max(took_s):.2f} s")
    # A busy machine may hold up one of them.
    assert sorted(took_s)[-2] < 2 and max(took_s) < 10, took_s
    assert (tmp_path / f"{restarts}-0.done").exists() and (tmp_path / f"{restarts}-1.done").exists()
