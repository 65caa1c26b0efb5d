"""PyTorch's own distributed tests against this backend (programs/torch_suite.py): a choice of them, or all with --long."""

import json
import pathlib
import re

import pytest

from . import jobs

# One or two of each kind.
QUICK = """
test_Backend_enum_class test_DistributedDataParallelCPU test_DistributedDataParallelCPU_grad_is_view test_accumulate_gradients_no_sync
test_accumulate_gradients_no_sync_allreduce_with_then_hook test_all_gather test_all_gather_coalesced_group test_all_gather_coalesced_with_empty
test_all_gather_object_subgroup test_all_reduce_coalesced_group_sum test_all_reduce_complex_unsupported_ops test_all_reduce_full_group_min
test_all_reduce_group_max test_all_reduce_product test_all_reduce_sum_async test_all_reduce_sum_complex test_all_to_all_complex
test_all_to_all_single_unequal_split_group test_barrier_group test_batch_isend_irecv_gloo_tags test_broadcast_full_group test_ddp_create_graph
test_destroy_group test_gather_checks test_gather_group test_gather_object test_get_backend test_get_future test_get_rank_size_group
test_grads_same_across_ranks_with_no_sync test_irecv test_isend test_reduce_group_min test_reduce_sum_twice test_scatter_complex
test_scatter_object_list test_send_recv_any_source test_send_recv_with_tag_torch_profiler test_sparse_all_reduce_sum test_static_graph_api_cpu
""".split()


def run_suite(logs: pathlib.Path, size: int, tests: list[str], timeout_s: float) -> dict[str, list[dict]]:
    """What each rank says of each test."""
    with jobs.start("torch_suite.py", size, logs, *tests) as ranks:
        codes = ranks.wait(timeout_s)
        assert not any(codes), ranks.outputs()
    found: dict[str, list[dict]] = {}
    for rank in range(size):
        for line in (logs / f"rank{rank}.jsonl").read_text().splitlines():
            result = json.loads(line)
            found.setdefault(result["check"], []).append(result)
    return found


def verify(found: dict[str, list[dict]], size: int, at_least: int) -> None:
    for name, results in found.items():
        for rank, result in enumerate(results):
            assert result["outcome"] != "failed", f"{name}, rank {rank}: {result['error']}"
    # A rank that is not in a test's group may skip it.
    passed = [name for name, results in found.items() if len(results) == size and any(result["outcome"] == "passed" for result in results)]
    print(f"{len(passed)} of {len(found)} of PyTorch's tests apply and pass on {size} ranks")
    assert len(passed) >= at_least, f"only {len(passed)} applied: {sorted(set(found) - set(passed))}"


def test_a_choice_of_pytorchs_tests(tmp_path):
    verify(run_suite(tmp_path, 3, QUICK, timeout_s=300), 3, at_least=len(QUICK))


def count_on_the_page(size: int) -> int:
    """How many docs/torch.md says pass on so many ranks."""
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "torch.md").read_text()
    return int(re.search(rf"(\d+) of \d+ apply and pass on {size} ranks", page)[1])


@pytest.mark.long
@pytest.mark.parametrize("size, at_least", [(2, 90), (4, count_on_the_page(4))])
def test_all_of_pytorchs_tests(tmp_path, size, at_least):
    verify(run_suite(tmp_path, size, [], timeout_s=1800), size, at_least)
