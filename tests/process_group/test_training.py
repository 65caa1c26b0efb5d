"""DDP, FSDP2, DTensor and the rest of what torch builds on a backend. Gradients are compared with gloo's."""

import pytest

from . import jobs
from .programs.checks import names

CHECKS = names(str(jobs.PROGRAMS / "training.py"))


@pytest.fixture(scope="module", params=[1, 2, pytest.param(4, marks=pytest.mark.long), pytest.param(7, marks=pytest.mark.long)])
def outcome(request, tmp_path_factory, pytestconfig):
    logs = tmp_path_factory.mktemp(f"ranks{request.param}")
    long = pytestconfig.getoption("markexpr") != "not long"
    with jobs.start("training.py", request.param, logs, env={"ROUNDS": "50" if long else "12"}) as ranks:
        return jobs.finish(ranks, logs, timeout_s=600 if long else jobs.TIMEOUT_S)


@pytest.mark.parametrize("check", CHECKS)
def test_training(outcome, check):
    outcome.verify(check)


def test_detailed_debugging_changes_nothing(tmp_path):
    """Every call is then compared over gloo. Not the checks that compare with DDP on gloo: torch 2.13 crashes there, in c10d::Logger."""
    checks = ["check_ddp_without_synchronisation", "check_zero_redundancy_optimizer", "check_fsdp2_trains", "check_forked_loader_workers_do_no_harm"]
    with jobs.start("training.py", 2, tmp_path, env={"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "ONLY": " ".join(checks)}) as ranks:
        outcome = jobs.finish(ranks, tmp_path)
    for check in checks:
        outcome.verify(check)


def test_ddps_buckets_lie_in_shared_memory_by_devices_too(tmp_path):
    """DDP asks the group's default backend, which "cpu:ccl" must have."""
    check = "check_ddp_buckets_lie_in_shared_memory"
    with jobs.start("training.py", 2, tmp_path, env={"BACKEND": "cpu:ccl", "ONLY": check}) as ranks:
        jobs.finish(ranks, tmp_path).verify(check)


def test_ddp_trains_without_workers(tmp_path):
    """It waits for futures, which nobody drives but a worker."""
    with jobs.start("training.py", 2, tmp_path, env={"CCL_WORKER_OFFLOAD": "0", "ONLY": "check_ddp"}) as ranks:
        jobs.finish(ranks, tmp_path).verify("check_ddp")
