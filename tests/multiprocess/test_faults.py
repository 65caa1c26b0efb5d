"""Ranks that die, stop or keep others waiting, as real processes on one host."""

import re
import signal
import time

import pytest

from tests.attempts import best_of_three
from tests.multiprocess.ccl_ranks import failure, start
from tests.multiprocess.holdings import held_by, still_held


def expect_survivors_name(ranks, victim):
    """Kills one of the ranks: the others must fail for that reason, and nothing may be left of the job. Returns after how many ms the last did."""
    held = held_by(ranks.living())
    ranks.kill(victim)
    survivors = [rank for rank in range(ranks.size) if rank != victim]
    codes = ranks.wait(timeout_s=30)
    assert [codes[rank] for rank in survivors] == [3] * len(survivors)
    slowest_ms = 0
    for rank in survivors:
        # The operation began before the kill, or when its victim was already gone.
        took_ms, kind, message = failure(ranks, rank)
        assert kind == "PeerLost" and f"rank {victim}" in message, message
        slowest_ms = max(slowest_ms, took_ms)
    assert not ranks.living()
    # Shared memory has no name, and neither has a UNIX socket: they are gone with the last process that holds them.
    assert held.memory and held.sockets and not held.named_memory, held
    assert not still_held(held)
    return slowest_ms


def expect_survivors_name_within_a_second(tmp_path, victim, *arguments, **env):
    def once(folder):
        with start(folder, 3, *arguments, "--seconds", 30, **env) as ranks:
            time.sleep(0.3)
            return expect_survivors_name(ranks, victim)

    best_of_three(tmp_path, 1000, once)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("size_bytes", [8, 65536, 64 << 20])
@pytest.mark.parametrize("direct", ["1", "0"])
def test_killed_rank_is_named_within_a_second(tmp_path, victim, size_bytes, direct):
    expect_survivors_name_within_a_second(tmp_path, victim, "--bytes", size_bytes, TRIREME_DIRECT_READ=direct)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("size_bytes", [16384, 4 << 20])
def test_killed_while_shared_buffers_are_handed_round(tmp_path, victim, size_bytes):
    expect_survivors_name_within_a_second(tmp_path, victim, "--bytes", size_bytes, "--shared", "--check")


@pytest.mark.parametrize("victim", [0, 1])
def test_killed_where_there_is_no_pidfd(tmp_path, victim):
    expect_survivors_name_within_a_second(tmp_path, victim, "--bytes", 65536, "--no-pidfd")


@pytest.mark.parametrize("pidfd", [[], ["--no-pidfd"]], ids=["pidfd", "no-pidfd"])
def test_killed_while_a_forked_child_lives(tmp_path, pidfd):
    def once(folder):
        with start(folder, 2, "--bytes", 65536, "--seconds", 30, "--fork-child", *pidfd) as ranks:
            time.sleep(0.2)
            ranks.kill(1)
            ranks.wait_for_output(0, "failed")
            took_ms, kind, _ = failure(ranks, 0)
            assert kind == "PeerLost"
            return took_ms

    best_of_three(tmp_path, 1000, once)


def test_without_shared_memory_the_ranks_of_a_host_use_the_network(tmp_path):
    with start(tmp_path, 3, "--bytes", 65536, "--seconds", 0.5, "--check", "--no-memfd", 0) as ranks:
        outputs = ranks.succeed(timeout_s=20)
    for output in outputs:
        assert "3 ranks on 3 hosts" in output and "cannot share memory" in output and "memfd_create" in output


def test_stopped_rank_is_no_alarm(tmp_path):
    with start(tmp_path, 2, "--bytes", 65536, "--seconds", 7, "--check", TRIREME_PEER_TIMEOUT_MS="2000") as ranks:
        time.sleep(0.2)
        ranks.kill(1, signal.SIGSTOP)
        time.sleep(5)
        assert "failed" not in ranks.output(0)
        ranks.kill(1, signal.SIGCONT)
        assert ranks.wait(timeout_s=10) == [0, 0]


def test_deadline_names_a_stopped_rank(tmp_path):
    def once(folder):
        with start(folder, 3, "--bytes", 65536, "--seconds", 30, "--timeout-ms", 1000) as ranks:
            ranks.kill(2, signal.SIGSTOP)
            took_ms = []
            for rank in (0, 1):
                ranks.wait_for_output(rank, "failed", timeout_s=30)
                took, kind, message = failure(ranks, rank)
                assert kind == "Timeout" and re.search(r"\b2\b", message), message
                took_ms.append(took)
        # The first whose time is up tells the other, who may have begun later.
        assert max(took_ms) > 900, took_ms
        return max(took_ms)

    best_of_three(tmp_path, 2500, once)


@pytest.mark.parametrize("workers", ["1", "2", "4"])
def test_results_are_right_with_any_number_of_workers(tmp_path, workers):
    with start(tmp_path, 4, "--bytes", 1 << 20, "--seconds", 1, "--check", CCL_WORKER_COUNT=workers) as ranks:
        assert ranks.wait(timeout_s=30) == [0, 0, 0, 0]


def test_signal_shows_what_a_rank_waits_for(tmp_path):
    with start(tmp_path, 2, "--bytes", 65536, "--seconds", 30) as ranks:
        ranks.kill(1, signal.SIGSTOP)
        time.sleep(0.3)
        ranks.kill(0, signal.SIGUSR1)
        ranks.wait_for_output(0, "on request: rank 0: allreduce of 16384 float32 (sum)", timeout_s=30)
        assert "of rank 1" in ranks.output(0)


def test_one_rank_alone(tmp_path):
    with start(tmp_path, 1, "--bytes", 1 << 20, "--seconds", 0.2, "--check") as ranks:
        assert ranks.wait(timeout_s=10) == [0]
