"""Every c10d operation on 1, 2 and 7 ranks, and on 3 and 4 in the long run. Each job runs all checks; each check is a test of its own here."""

import pytest

from . import jobs
from .programs.checks import names

CHECKS = [check for program in ("collectives.py", "works.py", "failing.py") for check in names(str(jobs.PROGRAMS / program))]
SIZES = [1, 2, pytest.param(3, marks=pytest.mark.long), pytest.param(4, marks=pytest.mark.long), 7]


@pytest.fixture(scope="module", params=SIZES)
def outcome(request, tmp_path_factory):
    logs = tmp_path_factory.mktemp(f"ranks{request.param}")
    with jobs.start("collectives.py", request.param, logs) as ranks:
        return jobs.finish(ranks, logs)


@pytest.mark.parametrize("check", CHECKS)
def test_collective(outcome, check):
    outcome.verify(check)


# The wrapper is what the program sees; and where a rank does not come, comes later, or calls something else, the wrapper notices first, over gloo, in its
# own time.
NOT_IN_DETAIL = [
    "check_backend_is_ours",
    "check_timeouts_fire_on_time_on_every_rank_and_name_who_is_missing",
    "check_a_call_may_have_a_timeout_of_its_own",
    "check_callbacks_that_wait_for_each_other_all_run",
    "check_a_forked_child_is_told_that_works_are_the_parents",
    "check_works_know_how_long_they_took",
    "check_polling_ends_with_the_timeout",
    "check_errors_of_a_group_name_global_ranks",
    "check_abort_ends_every_wait_on_every_rank",
    "check_a_wait_with_a_timeout_ends_only_itself",
    "check_what_others_called_is_named",
    "check_monitored_barrier_names_who_is_missing",
]


def test_detailed_debugging_changes_nothing(tmp_path):
    """torch then wraps the backend in one that compares every call over gloo."""
    assert set(NOT_IN_DETAIL) <= set(CHECKS)
    env = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "SKIP": " ".join(NOT_IN_DETAIL)}
    with jobs.start("collectives.py", 2, tmp_path, env=env) as ranks:
        outcome = jobs.finish(ranks, tmp_path)
    for check in set(CHECKS) - set(NOT_IN_DETAIL):
        outcome.verify(check)


def test_two_hosts(tmp_path):
    """Over TCP, as between hosts: nothing is shared."""
    env = {"TRIREME_SHARED_MEMORY": "0"}
    with jobs.start("collectives.py", 2, tmp_path, env=env) as ranks:
        outcome = jobs.finish(ranks, tmp_path)
    for check in CHECKS:
        outcome.verify(check)


WITHOUT_WORKERS = ["check_works_and_futures", "check_polling_ends_with_the_timeout"]


def test_without_workers_futures_and_polling_end_too(tmp_path):
    """Whoever waits for a future cannot drive, so there is a worker for that all the same; who polls sees to the deadlines."""
    with jobs.start("collectives.py", 2, tmp_path, env={"CCL_WORKER_OFFLOAD": "0", "ONLY": " ".join(WITHOUT_WORKERS)}) as ranks:
        outcome = jobs.finish(ranks, tmp_path)
    for check in WITHOUT_WORKERS:
        outcome.verify(check)
