"""Collectives between hosts: network namespaces with real TCP between them."""

import re
import signal
import time

import pytest

from tests.attempts import best_of_three
from tests.multiprocess import ccl_ranks
from tests.multiprocess.ccl_ranks import failure

PEER_TIMEOUT_MS = 2000


def start(tmp_path, cluster, size, *arguments, **env):
    return ccl_ranks.start(tmp_path, size, *arguments, hosts=cluster.hosts, **{"TRIREME_PEER_TIMEOUT_MS": str(PEER_TIMEOUT_MS), **env})


@pytest.mark.parametrize("size_bytes", [8, 65536, 4 << 20])
def test_two_hosts_of_two_ranks(tmp_path, make_cluster, size_bytes):
    with start(tmp_path, make_cluster(hosts=2), 4, "--bytes", size_bytes, "--seconds", 1, "--check") as ranks:
        assert ranks.wait(timeout_s=30) == [0, 0, 0, 0]
        assert "2 hosts" in ranks.output(0)


@pytest.mark.parametrize("victim", [0, 3])
def test_killed_rank_is_named_on_every_host(tmp_path, make_cluster, victim):
    cluster = make_cluster(hosts=2)

    def once(folder):
        with start(folder, cluster, 4, "--bytes", 1 << 20, "--seconds", 30) as ranks:
            time.sleep(0.3)
            ranks.kill(victim)
            codes = ranks.wait(timeout_s=30)
            slowest_ms = 0
            for rank in range(4):
                if rank == victim:
                    continue
                assert codes[rank] == 3
                took_ms, kind, message = failure(ranks, rank)
                assert kind == "PeerLost" and f"rank {victim}" in message, message
                slowest_ms = max(slowest_ms, took_ms)
            return slowest_ms

    best_of_three(tmp_path, 1000, once)


@pytest.mark.parametrize("size_bytes", [8, 16 << 20])
def test_a_silent_cut_is_seen_within_the_peer_timeout(tmp_path, make_cluster, size_bytes):
    cluster = make_cluster(hosts=2)

    def once(folder):
        with start(folder, cluster, 2, "--bytes", size_bytes, "--seconds", 60) as ranks:
            time.sleep(0.3)
            cut = time.monotonic()
            cluster.cut(0, 1)
            for rank in (0, 1):
                ranks.wait_for_output(rank, "failed", timeout_s=30)
            seen_s = time.monotonic() - cut
            for rank in (0, 1):
                _, kind, message = failure(ranks, rank)
                assert kind == "PeerLost" and f"rank {1 - rank}" in message, message
        cluster.heal(0, 1)
        return seen_s

    # Half a second is for the cut itself, and for ranks that wait for their turn on a busy machine.
    best_of_three(tmp_path, PEER_TIMEOUT_MS / 1000 + 0.5, once)


def test_delay_and_loss_are_no_alarm(tmp_path, make_cluster):
    cluster = make_cluster(hosts=2, delay_ms=100, loss_percent=1)
    arguments = ("--bytes", 65536, "--seconds", 6, "--check")
    with start(tmp_path, cluster, 2, *arguments, TRIREME_PEER_TIMEOUT_MS="5000") as ranks:
        assert ranks.wait(timeout_s=60) == [0, 0], ranks.output(0) + ranks.output(1)


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_rank_of_another_host_is_no_alarm(tmp_path, make_cluster, stopped):
    with start(tmp_path, make_cluster(hosts=2), 2, "--bytes", 65536, "--seconds", 7, "--check") as ranks:
        time.sleep(0.2)
        ranks.kill(stopped, signal.SIGSTOP)
        time.sleep(6)
        assert "failed" not in ranks.output(1 - stopped)
        ranks.kill(stopped, signal.SIGCONT)
        assert ranks.wait(timeout_s=10) == [0, 0], ranks.output(0) + ranks.output(1)


def test_lost_probes_are_no_alarm(tmp_path, make_cluster):
    """While nothing else is sent, whether a peer is there is asked more than once within the shortest timeout. A tenth of the questions
    get no answer here: of jobs that ask but once, which is 30 times in all, one in 22 would last."""
    cluster = make_cluster(hosts=2, loss_percent=5)

    def once(folder):
        with start(folder, cluster, 2, "--once-after", 15000, "--check") as ranks:
            codes = ranks.wait(timeout_s=60)
            print(ranks.outputs())
            return sum(code != 0 for code in codes)

    best_of_three(tmp_path, 1, once)


def test_who_is_done_first_takes_nothing_along(tmp_path, make_cluster):
    """A packet of the last result is lost often enough that it is sent again only after its sender has left."""
    cluster = make_cluster(hosts=2, delay_ms=20, loss_percent=12)
    for attempt in range(6):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        # TCP waits 0.2 s, and twice as long after each loss: eight in a row, which hardly happen, take 51 s.
        with start(folder, cluster, 2, "--bytes", 65536, "--seconds", 0.2, "--check", TRIREME_PEER_TIMEOUT_MS="60000") as ranks:
            assert ranks.wait(timeout_s=300) == [0, 0], ranks.output(0) + ranks.output(1)


def test_several_streams(tmp_path, make_cluster):
    arguments = ("--bytes", 16 << 20, "--seconds", 1, "--check")
    with start(tmp_path, make_cluster(hosts=2), 2, *arguments, TRIREME_TCP_STREAMS="3") as ranks:
        assert ranks.wait(timeout_s=30) == [0, 0]


def test_a_dead_interface_is_passed_over(tmp_path, make_cluster):
    arguments = ("--bytes", 65536, "--seconds", 0.5, "--check")
    with start(tmp_path, make_cluster(hosts=2, dead_interface=True), 2, *arguments) as ranks:
        assert ranks.wait(timeout_s=30) == [0, 0]


def test_a_link_carries_both_directions_at_once(tmp_path, make_cluster):
    """Two ranks that send in turn, each waiting for the other's answer, would get two thirds of it at best."""
    seconds, size_bytes, mbit = 5, 4 << 20, 100
    cluster = make_cluster(hosts=2, mbit=mbit)

    def once(folder):
        with start(folder, cluster, 2, "--bytes", size_bytes, "--seconds", seconds) as ranks:
            assert ranks.wait(timeout_s=60) == [0, 0]
            return seconds / int(re.search(r"done: (\d+) operations", ranks.output(0))[1])

    best_of_three(tmp_path, size_bytes * 8 / 1e6 / (0.75 * mbit), once)
