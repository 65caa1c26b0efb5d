"""PyTorch's own distributed tests (torch.testing._internal.distributed.distributed_test) against this backend.

    torch_suite.py [NAME...]        those tests, or all

They were written for processes that are started anew for each test. Here a rank runs one after another, with a new group each, so that a
rank imports torch once. Each test's outcome goes to RESULTS/rank<N>.jsonl: passed, failed, or why it does not apply.

A test is skipped where its own decorators say so, but not where they only say that it was written for another CPU backend by name.
"""

import json
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback
import unittest
from datetime import timedelta

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
RESULTS = pathlib.Path(os.environ["RESULTS"])
os.environ["BACKEND"] = "ccl"
os.environ["TEMP_DIR"] = str(RESULTS / "torch")
os.environ["INIT_METHOD"] = "env://"

from torch.testing._internal.common_distributed import TEST_SKIPS, DistTestCases  # noqa: E402

DistTestCases.backend_feature["ddp"].add("ccl")
DistTestCases.backend_feature["subgroup"].add("ccl")

import torch.distributed as dist  # noqa: E402
from torch.testing._internal.common_utils import set_rng_seed  # noqa: E402
from torch.testing._internal.distributed import distributed_test  # noqa: E402

# Reasons in decorators that name a backend where they mean "not on CUDA", or a feature that this backend has too.
WRITTEN_FOR_ANOTHER = (
    "Only MPI supports CPU all_to_all_single",
    "Only MPI supports all_to_all",
    "GLOO Batch Send Recv CPU",
    "Only Gloo backend supports sparse all reduce",
    "get_future is only supported on mpi, nccl and gloo",
    "Only Nccl & Gloo backend support DistributedDataParallel",
)
# Their bodies ask for the backend's name to choose between CPU and CUDA, and know no other CPU backend.
TAKEN_FOR_GLOO = "test_accumulate_gradients"
NOT_APPLICABLE = {
    **{f"test_barrier_timeout_{kind}": "expects gloo's words for a timeout" for kind in ("group", "full_group", "global")},
    "test_ddp_logging_data_cpu": "expects DDP to log the backend's name; torch logs every plugin as 'custom'",
}
LIMIT_S = 60


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    rank = RANK

    @property
    def world_size(self):
        return str(SIZE)

    def setUp(self):
        set_rng_seed(7)  # ranks draw the same models
        self.barriers = 0

    def _barrier(self, *args, **kwargs):
        self.barriers += 1
        meet(f"{self._testMethodName}.{self.barriers}")


class Stuck(BaseException):
    pass


def on_alarm(*_):
    raise Stuck(f"not finished after {LIMIT_S} s")


def skip_reason(name: str) -> str | None:
    function = getattr(Suite, name)
    reason = getattr(function, "__unittest_skip_why__", None)
    if name in NOT_APPLICABLE:
        return NOT_APPLICABLE[name]
    if "monitored_barrier" in name:
        return "torch keeps dist.monitored_barrier from every backend but gloo"
    if reason is None or reason in WRITTEN_FOR_ANOTHER or reason.startswith("Test requires backend ccl to be one of"):
        return None
    return reason


def run_one(name: str, file: pathlib.Path) -> tuple[str, str]:
    """(outcome, why)"""
    if reason := skip_reason(name):
        return "skipped", reason
    signal.alarm(LIMIT_S)
    try:
        dist.init_process_group("ccl", init_method=f"file://{file}", rank=RANK, world_size=SIZE, timeout=timedelta(seconds=30))
        test = Suite(name)
        test.rank, test.file_name = RANK, str(file)
        test.setUp()
        # Tests of subgroups ask for 8 ranks, though 3 are enough for them.
        os.environ["WORLD_SIZE"] = "8" if "_group" in name and SIZE >= 3 else str(SIZE)
        distributed_test.BACKEND = "gloo" if name.startswith(TAKEN_FOR_GLOO) else "ccl"
        getattr(test, name)()
        meet(f"{name}.end")  # nobody leaves a group in which others are still at work
        return "passed", ""
    except unittest.SkipTest as skip:
        return "skipped", str(skip)
    except SystemExit as exit:
        for skip in TEST_SKIPS.values():
            if skip.exit_code == exit.code:
                return "skipped", skip.message
        return "failed", f"exit code {exit.code}"
    except BaseException:
        return "failed", traceback.format_exc()
    finally:
        signal.alarm(0)
        if dist.is_initialized():
            dist.destroy_process_group()


def meet(name: str) -> None:
    """A barrier that needs no group: files. All ranks are done with a test before any begins the next."""
    folder = RESULTS / "torch" / "met"
    (folder / f"{name}.{RANK}").touch()
    deadline = time.monotonic() + 2 * LIMIT_S
    while any(not (folder / f"{name}.{rank}").exists() for rank in range(SIZE)):
        if time.monotonic() > deadline:
            raise Stuck(f"rank {RANK}: another rank did not come to {name}")
        time.sleep(0.005)


def main() -> None:
    folder = RESULTS / "torch"
    for part in ("barrier", "test_dir", "init_dir", "met"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGALRM, on_alarm)
    with (RESULTS / f"rank{RANK}.jsonl").open("w") as results:
        for name in sys.argv[1:] or [name for name in dir(Suite) if name.startswith("test_")]:
            start = time.perf_counter()
            outcome, why = run_one(name, folder / f"store.{name}")
            json.dump({"check": name, "outcome": outcome, "error": why, "seconds": round(time.perf_counter() - start, 2)}, results)
            print(file=results, flush=True)
            meet(name)
    os._exit(0)


if __name__ == "__main__":
    tempfile.tempdir = str(RESULTS)
    main()
