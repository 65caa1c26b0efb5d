"""What becomes of a group where something goes wrong: old keys, deadlines, abort, ranks that disagree or do not come. collectives.py runs these after its own."""

import datetime
import re
import shutil
import tempfile
import threading
import time

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist

from ranks import backend, raises, rank, run_threads, same, size, values


def check_keys_of_an_earlier_incarnation_do_no_harm():
    store = dist.PrefixStore("poisoned", dist.group.WORLD.get_group_store())
    if rank() == 0:
        store.set("trireme/ccl", "left over from something else")
    dist.barrier()
    kept = []
    for count in range(6):
        group = dist.ProcessGroupCCL(store, rank(), size(), datetime.timedelta(seconds=60))
        tensor = torch.ones(3)
        group.allreduce([tensor]).wait()
        assert tensor[0] == size()
        if count % 2:
            group.shutdown()
        else:
            kept.append(group)  # its rank 0 still lives when the others find its key
    for group in kept:
        tensor = torch.ones(3)
        group.allreduce([tensor]).wait()
        assert tensor[0] == size()


def check_an_earlier_rank_0_that_still_waits_does_no_harm():
    """For more ranks than there are now: its invitation is good, and leads to a meeting that never ends."""
    if size() == 1:
        return
    store = dist.PrefixStore("stale", dist.group.WORLD.get_group_store())
    failures = []

    def wait_in_vain():
        try:
            dist.ProcessGroupCCL(store, 0, size() + 1, datetime.timedelta(seconds=2))
        except dist.DistError as error:
            failures.append(str(error))

    stale = threading.Thread(target=wait_in_vain, daemon=True)
    if rank() == 0:
        stale.start()
        while stale.is_alive() and not store.check(["trireme/ccl"]):  # not wait(): it would keep the store from the other thread
            time.sleep(0.01)
    dist.barrier()
    if rank() == 0:
        time.sleep(0.5)  # the others knock at the wrong door meanwhile
    group = dist.ProcessGroupCCL(store, rank(), size(), datetime.timedelta(seconds=60))
    tensor = torch.ones(3)
    group.allreduce([tensor]).wait()
    assert tensor[0] == size()
    if rank() == 0:
        stale.join(60)
        assert failures and re.search(rf"\b{size()} did not come", failures[0]), failures


def check_timeouts_fire_on_time_on_every_rank_and_name_who_is_missing():
    if size() == 1:
        return
    limit_s = 1.5
    assert backend().get_error() == c10d.ErrorType.SUCCESS
    for missing, count in ((size() - 1, 70001), (0, 3)):
        group = dist.new_group(timeout=datetime.timedelta(seconds=1000))
        backend(group).set_timeout(datetime.timedelta(seconds=limit_s))
        dist.barrier()
        start = time.monotonic()
        if rank() != missing:
            raises(dist.DistBackendError, f"rank {missing}", lambda: dist.all_reduce(torch.ones(count), group=group))
        ended, starts = time.monotonic(), [None] * size()
        dist.all_gather_object(starts, start)
        if rank() != missing:
            # The first whose time is up tells the others, who may have begun later; and they may be held up by the machine's other work.
            first = min(each for other, each in enumerate(starts) if other != missing)
            assert ended - first > 0.9 * limit_s and ended - max(start, first + limit_s) < 5, (starts, ended)
        start = time.monotonic()
        raises(dist.DistBackendError, f"rank {missing}", lambda: dist.all_reduce(torch.ones(count), group=group))  # who was missing learns it too
        assert time.monotonic() - start < limit_s, "a dead group must not wait"
        assert backend(group).get_error() == c10d.ErrorType.TIMEOUT


def check_a_call_may_have_a_timeout_of_its_own():
    if size() == 1:
        return
    group = dist.new_group()
    if rank() == 0:
        options = c10d.AllreduceOptions()
        options.timeout = datetime.timedelta(seconds=1)
        start = time.monotonic()
        raises(dist.DistBackendError, "rank 1", lambda: group.allreduce([torch.ones(3)], options).wait())
        assert 0.9 < time.monotonic() - start < 6
    dist.barrier()


def check_polling_ends_with_the_timeout():
    """A program that only asks whether a small work is complete, without a pause, keeps the turn: no worker comes to look at the clock. For a large one
    it does."""
    if size() == 1:
        return
    for count in (3, 1 << 20):
        group = dist.new_group()
        backend(group).set_timeout(datetime.timedelta(seconds=1))
        if rank() == 0:
            start = time.monotonic()
            work = dist.all_reduce(torch.ones(count), group=group, async_op=True)
            while not work.is_completed():
                assert time.monotonic() - start < 10, "still not complete"
            raises(dist.DistBackendError, "rank 0", work.wait)
            assert time.monotonic() - start > 0.9
            assert work.get_future_result().wait() == c10d.WorkResult.TIMEOUT.value
        dist.barrier()


def check_errors_of_a_group_name_global_ranks():
    if size() < 3:
        return
    last = size() - 1
    group = dist.new_group([1, last])
    if rank() == 1:
        backend(group).set_timeout(datetime.timedelta(seconds=1))
        raises(dist.DistBackendError, f"rank 1 is global rank {last}", lambda: dist.all_reduce(torch.ones(3), group=group))
    dist.barrier()


def check_a_store_that_fails_is_named():
    folder = tempfile.mkdtemp()
    store = dist.FileStore(f"{folder}/store", size())
    store.set_timeout(datetime.timedelta(seconds=1))  # for which it looks for its file
    shutil.rmtree(folder)
    raises(dist.DistStoreError, "No such file", lambda: dist.ProcessGroupCCL(store, 0, 2, datetime.timedelta(seconds=60)))


def check_abort_ends_every_wait_on_every_rank():
    """Rank 0 waits in three threads, each in its way, and gives up; the last rank never comes."""
    if size() == 1:
        return
    group, last = dist.new_group(), size() - 1
    if rank() == 0:
        reduced, message = dist.all_reduce(torch.ones(70001), group=group, async_op=True), dist.irecv(torch.empty(3), last, group=group)
        future = dist.all_reduce(torch.ones(3), group=group, async_op=True).get_future()
        ended = []

        def wait_for(wait):
            try:
                wait()
            except Exception as error:
                ended.append((time.monotonic(), str(error)))

        aborted = []

        def give_up():
            time.sleep(0.5)
            aborted.append(time.monotonic())
            backend(group).abort()

        run_threads([lambda wait=wait: wait_for(wait) for wait in (reduced.wait, message.wait, future.wait)] + [give_up])
        assert len(ended) == 3 and all("abort" in words for _, words in ended), ended
        assert all(0 <= when - aborted[0] < 5 for when, _ in ended), (aborted, ended)
        raises(dist.DistBackendError, "abort", lambda: dist.all_reduce(torch.ones(3), group=group))
        assert backend(group).get_error() == c10d.ErrorType.COMM_ERROR
    elif rank() != last:
        start = time.monotonic()
        raises(dist.DistBackendError, "abort", lambda: dist.all_reduce(torch.ones(70001), group=group))
        assert time.monotonic() - start < 60
    dist.barrier()


def check_a_wait_with_a_timeout_ends_only_itself():
    if size() == 1:
        return
    tensor = torch.empty(3)
    if rank() == 0:
        work = dist.irecv(tensor, src=1, tag=3)
        raises(dist.DistBackendError, "timed out", lambda: work.wait(datetime.timedelta(milliseconds=200)))
        assert not work.is_completed()
        dist.barrier()
        work.wait()
        same(tensor, values(1, 3))
    else:
        dist.barrier()
        if rank() == 1:
            dist.send(values(1, 3), 0, tag=3)


def check_what_others_called_is_named():
    if size() == 1:
        return
    group = dist.new_group()
    call = dist.barrier if rank() == 0 else lambda group: dist.all_reduce(torch.ones(5), group=group)
    raises(dist.DistBackendError, "rank 0", lambda: call(group=group))
    dist.barrier()


def check_monitored_barrier_names_who_is_missing():
    backend().monitored_barrier(datetime.timedelta(seconds=60))
    if size() == 1:
        return
    group = dist.new_group()  # it will be dead afterwards
    if rank() != size() - 1:
        raises(
            dist.DistBackendError,
            f"rank {size() - 1}",
            lambda: backend(group).monitored_barrier(datetime.timedelta(seconds=3)),
        )
    dist.barrier()
