"""Every c10d operation on 1, 2, 3 and 7 ranks. Each job runs all checks; each check is a test of its own here."""

import pytest

from . import jobs
from .programs.checks import names

CHECKS = names(str(jobs.PROGRAMS / "collectives.py"))
SIZES = [1, 2, 3, pytest.param(4, marks=pytest.mark.long), 7]


@pytest.fixture(scope="module", params=SIZES)
def outcome(request, tmp_path_factory):
    logs = tmp_path_factory.mktemp(f"ranks{request.param}")
    with jobs.start("collectives.py", request.param, logs) as ranks:
        return jobs.finish(ranks, logs)


@pytest.mark.parametrize("check", CHECKS)
def test_collective(outcome, check):
    outcome.verify(check)


def test_detailed_debugging_changes_nothing(tmp_path):
    """torch then wraps the backend in one that compares every call over gloo."""
    env = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "ONLY": "check_allreduce_sums_of_every_dtype"}
    with jobs.start("collectives.py", 2, tmp_path, env=env) as ranks:
        jobs.finish(ranks, tmp_path).verify("check_allreduce_sums_of_every_dtype")


def test_two_hosts(tmp_path):
    """Over TCP: ranks that TRIREME_HOST sets apart."""
    env = {"TRIREME_SHARED_MEMORY": "0"}
    with jobs.start("collectives.py", 2, tmp_path, env=env) as ranks:
        outcome = jobs.finish(ranks, tmp_path)
    for check in CHECKS:
        outcome.verify(check)
