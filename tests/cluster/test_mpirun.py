"""`mpirun -f hostfile -n 4 -ppn 2 trireme qa ...` over ssh on two hosts, with MPICH, Intel MPI and Open MPI: the numbers are those of four
processes on one host, and a rank that is killed, or a host that is lost, ends the run."""

import re
import subprocess
import time

import pytest

from tests.trainer.runs import json_of, needs_program

from .hosts import REPOSITORY
from .mpis import INTEL, MPICH, MPICH_5, OPEN, HostfileRanks, every_mpi
from .training import ENVIRONMENT, hf_trainer, losses, trireme_qa, weights

pytestmark = needs_program

PEER_TIMEOUT_S, SSH_ALIVE_S = 3, 2
# Open MPI's mpirun has no channel that the trainer speaks: its ranks meet at rank 0's host, which somebody has to name.
MEETING = {"mpich": {}, "impi": {}, "openmpi": {"MASTER_ADDR": "node0"}}
SAME_ORDER = ("a", "a", "b", "b")


@pytest.fixture
def hosts(make_ssh_cluster):
    return make_ssh_cluster(hosts=2, alive_s=SSH_ALIVE_S)


# ---- The same numbers ----


@every_mpi
def test_losses_are_those_of_one_host(mpi, hosts, model, data, on_one_host, tmp_path):
    out = tmp_path / "out"
    with HostfileRanks(mpi, hosts, trireme_qa(model, data, out), logs=tmp_path, env=MEETING[mpi.name]) as ranks:
        ranks.succeed(timeout_s=120)
        assert ranks.left() == []
    assert "4 ranks on 2 hosts" in ranks.output(0) and "(node0: eth0 10.77.0.1, node1: eth0 10.77.0.2)" in ranks.output(0)
    assert len(losses(out)) == 16
    # Sums run in rank order within a host, then in host order (docs/ccl.md). So the bits are those of four processes on one machine that are
    # told to take themselves for two hosts.
    assert weights(out) == weights(on_one_host(trireme_qa, *SAME_ORDER))
    # On one host it is ((0 + 1) + 2) + 3 rather than (0 + 1) + (2 + 3): gradients differ by roundings of 2^-24, losses of about 3 after 16 steps by a few
    # times 1e-6, which a log with four decimals shows as nothing, or as one in the last.
    assert losses(out) == pytest.approx(losses(on_one_host(trireme_qa)), abs=1.5e-4, rel=0)


@pytest.mark.long
@pytest.mark.parametrize("mpi", [MPICH, INTEL, OPEN], ids=lambda mpi: mpi.name)
def test_hugging_faces_trainer(mpi, hosts, model, data, on_one_host, tmp_path):
    out = tmp_path / "out"
    # torch's c10d asks every launcher for this address.
    env = {**ENVIRONMENT, "MASTER_ADDR": "node0"}
    # The guides' --bf16, as where the CPU has no instructions for it: the results are those of fp32.
    with HostfileRanks(mpi, hosts, hf_trainer(model, data, out, "--bf16"), logs=tmp_path, env={**env, "TRIREME_BF16": "emulate"}) as ranks:
        ranks.succeed(timeout_s=300)
        assert ranks.left() == []
    group = json_of(out / "group.json")
    assert (group["backend"], group["world_size"], group["packed"]) == ("ccl", 4, True)
    assert weights(out) == weights(on_one_host(hf_trainer, *SAME_ORDER))
    assert json_of(out / "all_results.json")["train_loss"] == pytest.approx(json_of(on_one_host(hf_trainer) / "all_results.json")["train_loss"], abs=1.5e-4)


# ---- Hostfiles ----

# MPICH's mpirun may be killed by SIGPIPE when one host's ranks have ended before another's have begun.
NAME_OF_HOST = ["sh", "-c", "hostname; sleep 1"]
COMMENTED = "# two hosts\nnode0{slots} # the first\n\nnode1{slots}#comment\n"


@every_mpi
def test_a_hostfile_with_comments(mpi, hosts, tmp_path):
    slots = " slots=2" if mpi is OPEN else ""
    with HostfileRanks(mpi, hosts, NAME_OF_HOST, logs=tmp_path, hostfile=COMMENTED.format(slots=slots)) as ranks:
        assert ranks.succeed(timeout_s=60) == ["node0\n", "node0\n", "node1\n", "node1\n"]


@pytest.mark.long
def test_mpich_5_takes_a_hostfile_with_comments_after_sed(hosts, tmp_path):
    """Its message and the command are those of docs/clusters.md."""
    page = (REPOSITORY / "docs" / "clusters.md").read_text()
    message = re.search(r'MPICH 5 takes comments on lines of their own only; behind a host it stops with "(.*)"', page)[1]
    (sed,) = re.findall(r"^    (sed .* commented >hostfile)$", page, re.MULTILINE)
    commented = COMMENTED.format(slots="")
    with HostfileRanks(MPICH_5, hosts, NAME_OF_HOST, logs=tmp_path, hostfile=commented) as ranks:
        assert ranks.wait(timeout_s=60)[0] != 0
    assert message in ranks.outputs()
    (tmp_path / "commented").write_text(commented)
    subprocess.run(sed, shell=True, cwd=tmp_path, check=True)
    with HostfileRanks(MPICH_5, hosts, NAME_OF_HOST, logs=tmp_path, hostfile=(tmp_path / "hostfile").read_text()) as ranks:
        assert ranks.succeed(timeout_s=60) == ["node0\n", "node0\n", "node1\n", "node1\n"]
    with HostfileRanks(MPICH_5, hosts, NAME_OF_HOST, logs=tmp_path, hostfile="# two hosts\nnode0\nnode1\n") as ranks:
        ranks.succeed(timeout_s=60)


@pytest.mark.long
def test_open_mpi_without_the_name_of_rank_0s_host_is_told(hosts, model, data, tmp_path):
    with HostfileRanks(OPEN, hosts, trireme_qa(model, data, tmp_path / "out"), logs=tmp_path) as ranks:
        assert ranks.wait(timeout_s=60)[0] != 0
    assert "set MASTER_ADDR to the address of the host of rank 0" in ranks.outputs()


# ---- Deaths ----


def training(mpi, hosts, model, data, tmp_path, **env) -> HostfileRanks:
    """A run that is in the midst of its steps and would go on for long."""
    program = trireme_qa(model, data, tmp_path / "out", "--num_train_epochs", 100000)
    ranks = HostfileRanks(mpi, hosts, program, logs=tmp_path, env={**MEETING[mpi.name], **env})
    try:
        ranks.wait_for_output(0, "step 5/", timeout_s=60)
    except BaseException:
        ranks.close()
        raise
    return ranks


@every_mpi
@pytest.mark.parametrize("victim", [0, 3])
def test_a_killed_rank_ends_mpirun(mpi, hosts, model, data, tmp_path, victim):
    with training(mpi, hosts, model, data, tmp_path) as ranks:
        killed = time.monotonic()
        ranks.kill(victim)
        code = ranks.wait(timeout_s=30)[0]
        seconds = time.monotonic() - killed
        assert ranks.left() == []
    print(f"{mpi.name}: rank {victim} killed, mpirun ended with {code} after {seconds:.2f} s")
    assert code != 0
    assert seconds < 10


@every_mpi
def test_a_lost_host_ends_mpirun(mpi, hosts, model, data, tmp_path):
    """The ranks see it within the peer timeout. mpirun waits for its agent on the lost host, and it is ssh that gives that up (ServerAliveInterval)."""
    with training(mpi, hosts, model, data, tmp_path, TRIREME_PEER_TIMEOUT_MS=str(1000 * PEER_TIMEOUT_S)) as ranks:
        lost = time.monotonic()
        hosts.kill_host(1)
        for rank in (0, 1):
            ranks.wait_for_output(rank, ": lost rank ", timeout_s=30)
        seen_s = time.monotonic() - lost
        code = ranks.wait(timeout_s=60)[0]
        ended_s = time.monotonic() - lost
        assert ranks.left() == []
    print(f"{mpi.name}: a host lost, seen after {seen_s:.2f} s, mpirun ended with {code} after {ended_s:.2f} s")
    assert code != 0
    # ssh gives up when two of its questions have had no answer, at the third; mpirun then ends its other agents. The rest is for the cut itself, and for
    # processes that wait for their turn on a busy machine: how exact the peer timeout is, test_collectives.py shows.
    assert seen_s < PEER_TIMEOUT_S + 3
    assert ended_s < 3 * SSH_ALIVE_S + 10
